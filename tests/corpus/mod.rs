//! The corpus of fixtures, shared by the integration tests.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// One line of a manifest.
pub struct Case {
    pub root: PathBuf,
    pub json: Value,
}

impl Case {
    pub fn text(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_default()
    }
    pub fn name(&self) -> String {
        format!("{}/{}", self.text("dir"), self.text("name"))
    }
    pub fn folder(&self) -> PathBuf {
        self.root.join(self.text("dir"))
    }
    /// The malformed file itself.
    pub fn file(&self) -> PathBuf {
        self.folder().join(self.text("file"))
    }
    /// The folder of the well-formed circuit that the file was made from.
    pub fn base(&self) -> PathBuf {
        let curve = self.text("curve");
        self.root.join(curve).join(self.text("base"))
    }
    pub fn expects(&self, what: &str) -> bool {
        self.text("expect") == what
    }
    /// Points outside the subgroup are found under the deepest check only.
    pub fn needs_subgroup_check(&self) -> bool {
        self.text("file").contains("outside_subgroup")
    }
}

/// The cases in the repository.
pub fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The larger corpus beside the checkout, if it is there.
pub fn shared() -> Option<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .skip(1)
        .map(|p| p.join("shared/fixtures"))
        .find(|p| p.join("manifest.jsonl").is_file())
}

fn load(root: &Path) -> Vec<Case> {
    let text = fs::read_to_string(root.join("manifest.jsonl")).expect("a manifest");
    text.lines()
        .map(|line| Case {
            root: root.to_owned(),
            json: serde_json::from_str(line).expect("a line of the manifest"),
        })
        .collect()
}

/// Every case of `kind`: the shared corpus contains the bundled one, and replaces it if present.
pub fn cases(kind: &str) -> Vec<Case> {
    let root = shared().unwrap_or_else(|| {
        eprintln!("no ../shared/fixtures beside the checkout: only the bundled cases are run");
        bundled()
    });
    let mut cases = load(&root);
    cases.retain(|c| c.text("kind") == kind);
    cases
}
