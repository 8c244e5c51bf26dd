//! Output files that appear complete or not at all.

use crate::error::{Error, Result};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// A file written beside its destination and renamed into place by [`NewFile::commit`];
/// dropped before that, it leaves nothing behind.
#[derive(Debug)]
pub struct NewFile {
    destination: PathBuf,
    writer: BufWriter<Sink>,
}

#[derive(Debug)]
enum Sink {
    Beside(NamedTempFile),
    /// The destination exists and is no regular file (`/dev/stdout`, a pipe): renaming over it
    /// would replace the device, so it is kept in memory and written at the end.
    Memory(Vec<u8>),
}

impl Write for Sink {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside(file) => file.write(buf),
            Self::Memory(bytes) => bytes.write(buf),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Beside(file) => file.flush(),
            Self::Memory(_) => Ok(()),
        }
    }
}

impl NewFile {
    /// Opens a file for `destination`; symbolic links are followed.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder does not exist or cannot be written, or the destination is a
    /// folder.
    pub fn create(destination: &Path) -> Result<Self> {
        let err = |e| Error::io(destination, e);
        let target = match fs::metadata(destination) {
            Ok(meta) if meta.is_dir() => {
                return Err(err(io::Error::from(io::ErrorKind::IsADirectory)));
            }
            Ok(meta) if !meta.is_file() => {
                return Ok(Self {
                    destination: destination.to_owned(),
                    writer: BufWriter::new(Sink::Memory(Vec::new())),
                });
            }
            Ok(_) => fs::canonicalize(destination).map_err(err)?,
            Err(_) => destination.to_owned(),
        };
        let folder = match target.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        let mut builder = Builder::new();
        builder.prefix(".groth16-gpu-").suffix(".tmp");
        // Ordinary permissions (less the umask) instead of a temporary file's private ones.
        #[cfg(unix)]
        let ordinary = {
            use std::os::unix::fs::PermissionsExt;
            fs::Permissions::from_mode(0o666)
        };
        #[cfg(unix)]
        builder.permissions(ordinary);
        let file = builder.tempfile_in(folder).map_err(err)?;
        Ok(Self {
            destination: target,
            writer: BufWriter::new(Sink::Beside(file)),
        })
    }

    /// Writes all of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer
            .write_all(bytes)
            .map_err(|e| Error::io(&self.destination, e))
    }

    /// Puts the file into place.
    pub fn commit(self) -> Result<()> {
        let destination = self.destination;
        let err = |e| Error::io(&destination, e);
        match self.writer.into_inner().map_err(|e| err(e.into_error()))? {
            Sink::Beside(file) => {
                file.persist(&destination).map_err(|e| err(e.error))?;
            }
            Sink::Memory(bytes) => {
                let mut file = fs::OpenOptions::new()
                    .write(true)
                    .open(&destination)
                    .map_err(err)?;
                file.write_all(&bytes).map_err(err)?;
            }
        }
        Ok(())
    }
}

/// Puts several files into place; if one fails, those already placed are removed again.
///
/// # Errors
/// [`Error::Io`] of the first that failed.
pub fn commit_all(files: Vec<NewFile>) -> Result<()> {
    let mut placed: Vec<PathBuf> = Vec::new();
    for file in files {
        let regular = matches!(file.writer.get_ref(), Sink::Beside(_));
        let destination = file.destination.clone();
        if let Err(e) = file.commit() {
            for path in placed {
                // Already failing; nothing better can be done about a second failure.
                let _ = fs::remove_file(path);
            }
            return Err(e);
        }
        if regular {
            placed.push(destination);
        }
    }
    Ok(())
}

/// Writes `bytes` to `destination`, complete or not at all.
pub fn write_file(destination: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = NewFile::create(destination)?;
    file.write(bytes)?;
    file.commit()
}
