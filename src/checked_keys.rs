//! Which prepared keys had their points checked: small files in the cache folder, named by digest.
//!
//! A file's name is the SHA-256 of a prepared key's header, which has the digests of all its
//! sections: a key that differs in one byte has another name, and is checked again. Who can write to
//! the user's cache folder can claim what was never checked, as he can replace compiled kernels.

use crate::device::CacheFolder;
use crate::device::pipelines::replace_file;
use crate::proving_key::KeyCheck;
use std::path::PathBuf;

fn file(cache: &CacheFolder, digest: &[u8; 32]) -> Option<PathBuf> {
    let name: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    Some(cache.path()?.join(format!("checked_{name}")))
}

fn depth(level: KeyCheck) -> u8 {
    match level {
        KeyCheck::None => 0,
        KeyCheck::OnCurve => 1,
        KeyCheck::Subgroup => 2,
    }
}

/// Whether the key with this digest was checked at `level` or deeper.
pub(crate) fn is_known(cache: &CacheFolder, digest: &[u8; 32], level: KeyCheck) -> bool {
    let text = file(cache, digest).and_then(|f| std::fs::read_to_string(f).ok());
    let known: Option<KeyCheck> = text.and_then(|t| t.trim().parse().ok());
    known.is_some_and(|known| depth(known) >= depth(level))
}

/// Remembers that it was. Trouble with that costs time and nothing else.
pub(crate) fn remember(cache: &CacheFolder, digest: &[u8; 32], level: KeyCheck) {
    if level == KeyCheck::None || is_known(cache, digest, level) {
        return;
    }
    let Some(file) = file(cache, digest) else {
        return;
    };
    if let Err(error) = replace_file(&file, &[level.name().as_bytes(), b"\n"]) {
        log::warn!("{}: not written: {error}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_covers_those_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheFolder::At(folder.path().join("new"));
        let (one, other) = ([1; 32], [2; 32]);
        let known = |digest, level| is_known(&cache, digest, level);
        assert!(!known(&one, KeyCheck::None));
        remember(&cache, &one, KeyCheck::None);
        assert!(!known(&one, KeyCheck::OnCurve));
        remember(&cache, &one, KeyCheck::Subgroup);
        // A shallower check afterwards takes nothing back.
        remember(&cache, &one, KeyCheck::OnCurve);
        assert!(known(&one, KeyCheck::Subgroup) && known(&one, KeyCheck::OnCurve));
        assert!(!known(&other, KeyCheck::OnCurve));
        std::fs::write(file(&cache, &one).unwrap(), "everything").unwrap();
        assert!(!known(&one, KeyCheck::OnCurve));
        remember(&CacheFolder::None, &one, KeyCheck::OnCurve);
    }
}
