//! The house rules that a compiler does not know.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{CargoOpt, DependencyKind, MetadataCommand};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Which of our crates each may name. Dev-dependencies are free: only tests use them.
const EDGES: [(&str, &[&str]); 10] = [
    (
        "railyard",
        &[
            "railyard-api",
            "railyard-bench",
            "railyard-core",
            "railyard-node",
            "railyard-postgres",
            "railyard-rail",
            "railyard-store",
        ],
    ),
    ("railyard-api", &["railyard-core", "railyard-store"]),
    ("railyard-bench", &["railyard-core", "railyard-postgres", "railyard-rail", "railyard-store"]),
    ("railyard-core", &[]),
    ("railyard-node", &["railyard-core", "railyard-rail", "railyard-store"]),
    ("railyard-postgres", &[]),
    ("railyard-rail", &["railyard-core"]),
    ("railyard-store", &["railyard-core"]),
    ("railyard-testkit", &["railyard-postgres"]),
    ("railyard-tests", &[]),
];

#[test]
fn crates_depend_on_each_other_as_drawn() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        .no_deps()
        .exec()
        .unwrap();
    let allowed: BTreeMap<&str, &[&str]> = EDGES.into();
    assert_eq!(metadata.packages.len(), allowed.len(), "a crate was added or removed: draw it");
    for package in &metadata.packages {
        let may = allowed[package.name.as_str()];
        for dependency in package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development) {
            let ours = dependency.name.starts_with("railyard");
            assert!(!ours || may.contains(&dependency.name.as_str()), "{} -> {}", package.name, dependency.name);
        }
    }
}

/// Every `.rs` file of ours, with its text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![root().join("crates"), root().join("tests")];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

/// One idea a file: the median, the ninth tenth and the longest.
#[test]
fn files_are_small() {
    let mut lines: Vec<(usize, PathBuf)> =
        sources().into_iter().map(|(path, text)| (text.lines().count(), path)).collect();
    lines.sort();
    let at = |share: usize| lines[(lines.len() - 1) * share / 100].0;
    assert!(at(50) <= 150, "median {}", at(50));
    assert!(at(90) <= 400, "ninth tenth {}", at(90));
    let (longest, path) = lines.last().unwrap();
    assert!(*longest <= 600, "{} has {longest} lines", path.display());
}

/// SQL to our database is spoken in the store alone. Benches look at it from outside, as the tests do.
#[test]
fn sql_is_spoken_in_the_store_alone() {
    for (path, text) in sources() {
        let place = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let free = [
            "crates/railyard-store",
            "crates/railyard-bench",
            "crates/railyard-testkit",
            "crates/railyard-postgres",
            "tests/",
        ];
        if free.iter().any(|free| place.starts_with(free)) || place.contains("tests") {
            continue;
        }
        for word in ["SELECT ", "INSERT INTO ", "DELETE FROM ", "UPDATE "] {
            let hit = text.lines().find(|line| !line.trim_start().starts_with("//") && line.contains(word));
            assert!(hit.is_none(), "{place}: {}", hit.unwrap_or_default());
        }
    }
}

/// The tests whose subject links are, and what they are made of.
const LINKED: [&str; 9] = [
    "certificates.rs",
    "deaf.rs",
    "fleet.rs",
    "hostile.rs",
    "linked.rs",
    "links.rs",
    "manifests.rs",
    "matrix.rs",
    "rolling.rs",
];

/// Everything works with the cluster port closed: all tests but those about links run so, and show it.
#[test]
fn all_tests_but_those_about_links_run_without_any() {
    let words = ["Fleet::linked", "LinkedFleet", "[cluster]", "RAILYARD_CLUSTER", "cluster.listen", "options.links"];
    let mut without = 0;
    for (path, text) in sources() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !path.starts_with(root().join("tests/it")) || name == "tidy.rs" || LINKED.contains(&name.as_str()) {
            continue;
        }
        without += 1;
        for word in words {
            assert!(!text.contains(word), "{name} has {word}: a test with links stands in {LINKED:?}");
        }
    }
    assert!(without > 40, "{without} files");
}

/// The names of all tests.
fn tests() -> Vec<String> {
    let mut names = Vec::new();
    for (_, text) in sources() {
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let name = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
            if let (true, Some(name)) = (is_test, name) {
                names.push(name.split(['(', '<']).next().unwrap().to_owned());
                is_test = false;
            }
        }
    }
    names
}

/// What stands between back quotes and looks like a test's name or the start of one.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|word| {
        word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    })
}

/// Each invariant is numbered, and the tests that are said to hold it exist.
#[test]
fn invariants_name_tests_that_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let list = text.split("<!-- invariants -->").nth(1).unwrap().split("<!-- /invariants -->").next().unwrap();
    let migrations: String = fs::read_dir(root().join("crates/railyard-store/migrations"))
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let tests = tests();
    let mut count = 0;
    for line in list.lines().filter(|line| line.starts_with("- ")) {
        count += 1;
        assert!(line.starts_with(&format!("- **I-{count:02}** ")), "{line}");
        let mut held = 0;
        for name in named(line) {
            let is_test = tests.iter().any(|test| test.starts_with(name));
            assert!(is_test || migrations.contains(name), "I-{count:02}: there is no {name}");
            held += usize::from(is_test);
        }
        assert!(held > 0, "I-{count:02} is held by no test");
    }
    assert!(count >= 12, "{count} invariants");
}

/// Tests that the documents point to exist.
#[test]
fn documents_name_tests_that_exist() {
    let tests = tests();
    for file in ["README.md", "tests/README.md"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        for name in named(&text).filter(|name| is_of_a_promise(name)) {
            assert!(tests.iter().any(|test| test.starts_with(name)), "{file}: there is no test {name}");
        }
    }
}

/// `s2_09_…`, `trap_…`, `r1_…`: nothing else is named so.
fn is_of_a_promise(name: &str) -> bool {
    let digits = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name.starts_with("trap_") || ['s', 'r'].iter().any(|c| name.strip_prefix(*c).is_some_and(digits))
}
