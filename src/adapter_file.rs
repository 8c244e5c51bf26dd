//! Files of the cache folder that are about one adapter with one driver: what they are for, where
//! they are, and reading them as what anybody may have written.

use crate::device::DeviceInfo;
use crate::kernels::KERNELS_DIGEST;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};

/// None comes near.
pub(crate) const MAX_BYTES: u64 = 256 << 10;

/// What such a file is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdapterKey {
    adapter: String,
    backend: String,
    vendor_id: u32,
    device_id: u32,
    driver: String,
    tiers: Vec<String>,
    version: String,
    /// Digest of the kernels' text.
    kernels: String,
}

impl AdapterKey {
    pub fn new(info: &DeviceInfo) -> Self {
        Self {
            adapter: info.name.clone(),
            backend: info.backend.name().to_owned(),
            vendor_id: info.vendor_id,
            device_id: info.device_id,
            driver: info.driver.clone(),
            tiers: info.tiers.iter().map(|t| t.name().to_owned()).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernels: KERNELS_DIGEST.to_owned(),
        }
    }
}

/// Where an adapter's file of a kind is. The name leaves out version and kernels: a new version's
/// file replaces the old one's.
pub(crate) fn path(folder: &Path, kind: &str, info: &DeviceInfo) -> PathBuf {
    let (backend, vendor, device) = (info.backend.name(), info.vendor_id, info.device_id);
    let digest = Sha256::digest(format!("{} {}", info.name, info.driver));
    let name: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
    folder.join(format!(
        "{kind}_{backend}_{vendor:x}_{device:x}_{name}.json"
    ))
}

/// The content of a file in this `format`, if it is a small, plain file of it. Says in the log why
/// it counts as missing.
pub(crate) fn read<T: for<'a> Deserialize<'a>>(path: &Path, format: u32) -> Option<T> {
    let ignored = |why: &str| log::warn!("{}: {why}; ignored", path.display());
    // Not a pipe, say, which would be waited for.
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        ignored("not a file of this program");
        return None;
    }
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    if let Err(error) = read {
        ignored(&error.to_string());
        return None;
    }
    #[derive(Deserialize)]
    struct Form {
        format: u32,
    }
    match serde_json::from_slice::<Form>(&bytes) {
        Ok(form) if form.format != format => {
            log::debug!("{}: of another version", path.display());
            return None;
        }
        _ => {}
    }
    match serde_json::from_slice(&bytes) {
        Ok(content) => Some(content),
        Err(error) => {
            ignored(&format!("damaged: {error}"));
            None
        }
    }
}
