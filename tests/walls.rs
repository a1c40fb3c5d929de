//! The walls between the rooms, and the habits that a compiler does not enforce.
//! The table of rooms is read from `ARCHITECTURE.md`; every failure names file and line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a source file, its unit tests at the foot not counted, past which it holds a second concept.
const SOURCE_LINES_MAX: usize = 800;
/// Rooms that never touch a socket, a thread, the clock or ambient randomness.
const SANS_IO: [&str; 7] = [
    "wire",
    "crypto",
    "handshake",
    "association",
    "link",
    "bridge",
    "a2a",
];
/// Modules that every room may import; the macro `reasons!` belongs to `stats`.
const FOR_ALL: [&str; 3] = ["limits", "stats", "reasons"];
/// The only homes of `unsafe`.
const UNSAFE_HOMES: [&str; 2] = ["src/engine/", "src/crypto/multibuffer"];

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this test"))
}

/// Files of the project under `folder`, as `(path from the root, text)`; what is not text is left out.
fn files(folder: &str) -> Vec<(String, String)> {
    let (root, mut found) = (root(), Vec::new());
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            // A checked-out work tree has a file `.git`.
            if ["target", ".git", ".peers", "node_modules", "__pycache__"].contains(&&*name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push((relative(&root, &path), text));
            }
        }
    }
    found.sort();
    found
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

fn sources() -> Vec<(String, String)> {
    let mut sources = files("src");
    sources.retain(|(path, _)| is_rust(path));
    assert!(sources.len() > 20, "the sources are not where they were");
    sources
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|e| e == "rs")
}

/// The room that a file belongs to; none for `lib.rs`, `limits.rs` and the like.
fn room_of(path: &str) -> Option<&str> {
    path.strip_prefix("src/")?
        .split_once('/')
        .map(|(room, _)| room)
}

/// A file that is all unit tests.
fn is_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || (path.starts_with("src/") && path.contains("/tests/"))
}

/// A line without its `//` comment. Good enough for code that `rustfmt` wrote: a
/// `//` inside a string hides the rest of its line, which is where no path stands.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Line number of the unit tests at the foot, or the number of lines.
fn foot(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len())
        .find(|&i| {
            lines[i] == "#[cfg(test)]"
                && lines[i + 1..]
                    .iter()
                    .find(|line| !line.starts_with("#["))
                    .is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
        })
        .unwrap_or(lines.len())
}

/// Whether `name` stands in `line` as a whole word.
fn has_word(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let beside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !beside(line[..at].chars().next_back()) && !beside(line[at + name.len()..].chars().next())
    })
}

/// Every `crate::…` path of a file with its line number; groups in braces are
/// taken apart, over line ends too.
fn crate_paths(text: &str) -> Vec<(usize, String)> {
    let mut code_only = String::new();
    for line in text.lines() {
        let _ = writeln!(code_only, "{}", code(line));
    }
    let mut paths = Vec::new();
    for (at, _) in code_only.match_indices("crate::") {
        let line = code_only[..at].matches('\n').count() + 1;
        let rest = code_only[at + "crate::".len()..].trim_start();
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0_usize;
            let mut item = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    _ => {}
                }
                if c == ',' && depth == 0 {
                    paths.push((line, std::mem::take(&mut item)));
                } else if !c.is_whitespace() {
                    item.push(c);
                }
            }
            paths.push((line, item));
        } else {
            let end = rest
                .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                .unwrap_or(rest.len());
            paths.push((line, rest[..end].to_owned()));
        }
    }
    paths.retain(|(_, path)| !path.is_empty());
    paths
}

/// Cells of the tables of a Markdown file, with line numbers.
fn table_rows(text: &str) -> Vec<(usize, Vec<String>)> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with('|') && !line.starts_with("|-"))
        .map(|(i, line)| {
            let cells = line.trim().trim_matches('|').split('|');
            (i + 1, cells.map(|cell| cell.trim().to_owned()).collect())
        })
        .collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(ToOwned::to_owned)
        .collect()
}

enum Imports {
    All,
    AllBut(Vec<String>),
    These(Vec<String>),
}

impl Imports {
    fn admit(&self, path: &str) -> bool {
        let room = path.split("::").next().unwrap_or_default();
        match self {
            Self::All => true,
            Self::AllBut(refused) => !refused.iter().any(|r| r == room),
            Self::These(admitted) => admitted.iter().any(|a| {
                path == a
                    || path
                        .strip_prefix(a)
                        .is_some_and(|rest| rest.starts_with("::"))
            }),
        }
    }
}

/// The table of rooms in `ARCHITECTURE.md`.
fn rooms() -> BTreeMap<String, Imports> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section = text.split("\n## Rooms\n").nth(1).expect("section Rooms");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rooms: BTreeMap<String, Imports> = table_rows(section)
        .into_iter()
        .filter_map(|(_, cells)| {
            let [room, _, imports] = cells.as_slice() else {
                return None;
            };
            let name = quoted(room).into_iter().next()?;
            let named = quoted(imports);
            let imports = match imports.as_str() {
                "all" => Imports::All,
                text if text.starts_with("all but") => Imports::AllBut(named),
                _ => Imports::These(named),
            };
            Some((name, imports))
        })
        .collect();
    assert!(rooms.len() >= 12, "the table of rooms has shrunk");
    rooms
}

fn report(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} breaches\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn imports_keep_to_the_table_of_rooms() {
    let rooms = rooms();
    let mut failures = Vec::new();
    for (path, text) in sources() {
        let Some(room) = room_of(&path) else { continue };
        let Some(imports) = rooms.get(room) else {
            failures.push(format!("{path}: no room `{room}` in ARCHITECTURE.md"));
            continue;
        };
        for (line, target) in crate_paths(&text) {
            let first = target.split("::").next().unwrap_or_default();
            if first != room && !FOR_ALL.contains(&first) && !imports.admit(&target) {
                failures.push(format!("{path}:{line}: `{room}` may not import `{target}`"));
            }
        }
        // The back door: out of the room by `super`, past its own root.
        for (i, line) in text.lines().enumerate() {
            for other in rooms.keys().filter(|other| *other != room) {
                let inside = root().join("src").join(room).join(format!("{other}.rs"));
                if code(line).contains(&format!("super::{other}::")) && !inside.exists() {
                    failures.push(format!("{path}:{}: imports `{other}` by `super`", i + 1));
                }
            }
        }
    }
    report(&failures);
}

#[test]
fn every_room_of_the_table_exists() {
    for room in rooms().keys() {
        let file = root().join("src").join(room).join("mod.rs");
        assert!(file.exists(), "{}", file.display());
    }
}

#[test]
fn unsafe_code_stays_in_its_homes() {
    let mut failures = Vec::new();
    let homes = |path: &str| UNSAFE_HOMES.iter().any(|home| path.starts_with(home));
    let all = sources();
    for (path, text) in &all {
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            if !has_word(code(line), "unsafe") {
                continue;
            }
            if !homes(path) {
                failures.push(format!("{path}:{}: unsafe outside its homes", i + 1));
                continue;
            }
            let above = |count: usize, what: &str| {
                lines[i.saturating_sub(count)..=i]
                    .iter()
                    .any(|line| line.contains(what))
            };
            // A function says what its caller must uphold, a block or an implementation why it does.
            let explained = if line.contains("unsafe fn") || line.contains("unsafe trait") {
                above(20, "# Safety") || above(8, "SAFETY:")
            } else {
                above(8, "SAFETY:")
            };
            if !explained {
                failures.push(format!("{path}:{}: unsafe without its reason", i + 1));
            }
        }
        // What a folder may not do is said once, in its `mod.rs`.
        let top = room_of(path).is_none() || path.matches('/').count() == 2;
        let says =
            path.ends_with("/mod.rs") || ["src/limits.rs", "src/stats.rs"].contains(&path.as_str());
        let holds_unsafe = all
            .iter()
            .any(|(other, _)| homes(other) && room_of(other) == room_of(path));
        if top && says && !holds_unsafe && !text.contains("#![forbid(unsafe_code)]") {
            failures.push(format!("{path}: does not forbid unsafe code"));
        }
    }
    report(&failures);
}

#[test]
fn sans_io_rooms_touch_nothing_outside() {
    let ambient = [
        "std::net",
        "std::thread",
        "std::fs",
        "std::process",
        "std::env",
        "tokio",
        "Instant::now",
        "SystemTime::now",
        "getrandom",
        "SystemRandom",
        "OsRng",
        "thread_rng",
    ];
    let mut failures = Vec::new();
    for (path, text) in sources() {
        let in_room = room_of(&path).is_some_and(|room| SANS_IO.contains(&room));
        if !in_room || is_tests(&path) {
            continue;
        }
        for (i, line) in text.lines().take(foot(&text)).enumerate() {
            for name in ambient.iter().filter(|name| has_word(code(line), name)) {
                failures.push(format!("{path}:{}: {name} in a room without IO", i + 1));
            }
        }
    }
    report(&failures);
}

#[test]
fn source_files_hold_one_concept() {
    let mut failures = Vec::new();
    for (path, text) in sources() {
        let lines = foot(&text);
        if lines > SOURCE_LINES_MAX && !is_tests(&path) {
            failures.push(format!(
                "{path}: {lines} lines, look for the second concept"
            ));
        }
        if !text.starts_with("//!") {
            failures.push(format!("{path}:1: does not open by saying what it is"));
        }
    }
    report(&failures);
}

#[test]
fn every_bound_says_what_it_bounds() {
    let text = fs::read_to_string(root().join("src/limits.rs")).expect("limits");
    let lines: Vec<&str> = text.lines().collect();
    let bounds: Vec<usize> = (0..lines.len())
        .filter(|&i| lines[i].starts_with("pub const "))
        .collect();
    assert!(bounds.len() > 30, "the bounds are not where they were");
    let bare = bounds
        .into_iter()
        .filter(|&i| i == 0 || !lines[i - 1].starts_with("/// "))
        .map(|i| format!("src/limits.rs:{}: {}", i + 1, lines[i]))
        .collect::<Vec<_>>();
    report(&bare);
}

#[test]
fn nothing_is_left_for_later() {
    // Taken apart, so that this file does not find itself.
    let marks = ["to", "unimplemented", "db"].map(|name| match name {
        "to" => concat!("to", "do!").to_owned(),
        "db" => concat!("db", "g!").to_owned(),
        other => format!("{other}!"),
    });
    let ignore = concat!("#[", "ignore");
    let mut failures = Vec::new();
    for folder in ["src", "tests", "benches", "loadgen"] {
        for (path, text) in files(folder) {
            for (i, line) in text.lines().enumerate().filter(|_| is_rust(&path)) {
                let left = marks.iter().any(|mark| {
                    line.match_indices(mark.as_str())
                        .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric()))
                        && path != "tests/walls.rs"
                });
                if left || line.trim_start().starts_with(ignore) {
                    failures.push(format!("{path}:{}: {}", i + 1, line.trim()));
                }
            }
        }
    }
    report(&failures);
}

#[test]
fn no_file_names_a_machine_or_a_package_registry() {
    let needles = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/tmp/", "np"),
        concat!("pypi", ".org"),
        concat!("crates", ".io"),
        concat!("npmjs", ".org"),
        concat!("npmjs", ".com"),
        concat!("proxy.golang", ".org"),
    ];
    let mut failures = Vec::new();
    for (path, text) in files("") {
        // Cargo writes the name of its own registry into its lock files.
        if path.ends_with("Cargo.lock") {
            continue;
        }
        for (i, line) in text.lines().enumerate() {
            for needle in needles.iter().filter(|needle| line.contains(**needle)) {
                failures.push(format!("{path}:{}: {needle}", i + 1));
            }
        }
    }
    report(&failures);
}

/// A clause is not called done without a test, and a named test is there.
#[test]
fn conformance_names_tests_that_exist() {
    let text = fs::read_to_string(root().join("CONFORMANCE.md")).expect("CONFORMANCE.md");
    let (mut failures, mut named) = (Vec::new(), 0);
    for (line, cells) in table_rows(&text) {
        let [.., tests, state] = cells.as_slice() else {
            continue;
        };
        let tests: Vec<String> = quoted(tests)
            .into_iter()
            .filter(|name| name.contains(".rs::"))
            .collect();
        for test in &tests {
            named += 1;
            let (file, name) = test.split_once("::").unwrap_or((test, ""));
            let there = fs::read_to_string(root().join(file))
                .is_ok_and(|source| source.contains(&format!("fn {name}(")));
            if !there {
                failures.push(format!("CONFORMANCE.md:{line}: no test `{test}`"));
            }
        }
        let claims = state.starts_with("done") || state.starts_with("part");
        if claims && tests.is_empty() {
            failures.push(format!("CONFORMANCE.md:{line}: `{state}` without a test"));
        }
    }
    assert!(named > 50, "the tables of CONFORMANCE.md have shrunk");
    report(&failures);
}
