//! Circles of files inside crates: files that import each other, directly or by way of others. There are to be no more of them, and no
//! larger ones, than are listed here; whoever opens one takes it from the list.
//!
//! An arrow is a path that begins with `crate::` or `super::`, in a `use` or anywhere else outside of tests and comments; it leads to the
//! file that defines the name, through re-exports. A module and the modules below it count as one for each other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// How many files the circles of a crate have, the largest first.
///
/// That of `reql` (env.rs, source.rs, stream and val.rs) is the language's own: the function of a row may give a stream, whose rows
/// come from functions, which run in an environment with the tables, which are written by functions.
const CIRCLES: &[(&str, &[usize])] = &[("reql", &[4])];

type Module = Vec<String>;

/// The modules of a crate, with the code of their files that is no test.
fn modules(directory: &Path, above: &Module, found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_string();
        let mut module = above.clone();
        if path.is_dir() {
            module.push(stem);
            modules(&path, &module, found);
        } else if !stem.ends_with("tests") && !stem.starts_with("test_") && stem != "bin" {
            module.extend(Some(stem).filter(|stem| !["lib", "main", "mod"].contains(&stem.as_str())));
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = code.lines().map(|line| line.split("//").next().unwrap());
            found.insert(module, lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Modules below one that are there in tests only.
fn modules_for_tests(module: &Module, code: &str) -> Vec<Module> {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]");
    let named =
        pairs.filter_map(|pair| pair[1].strip_suffix(';')?.split_once("mod ").map(|(_, name)| name.to_string()));
    named.map(|name| module.iter().cloned().chain([name]).collect()).collect()
}

/// The paths that a `use` names: `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
fn expand(tree: &str, found: &mut Vec<String>) {
    let Some(open) = tree.find('{') else { return found.push(tree.split(" as ").next().unwrap().trim().into()) };
    let (mut depth, mut from, inside) = (0, 0, &tree[open + 1..tree.rfind('}').unwrap()]);
    for (at, sign) in inside.char_indices().chain([(inside.len(), ',')]) {
        depth += i32::from(sign == '{') - i32::from(sign == '}');
        if sign == ',' && depth == 0 {
            let part = inside[from..at].trim();
            from = at + 1;
            if !part.is_empty() {
                expand(&format!("{}{part}", tree[..open].trim()), found);
            }
        }
    }
}

/// A path from the root of the crate; `None` if it leads out of it.
fn absolute(module: &Module, path: &str, all: &BTreeMap<Module, String>) -> Option<Module> {
    let mut parts: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut base = module.clone();
    match parts[0] {
        "crate" => base.clear(),
        "super" => _ = base.pop(),
        "self" => {}
        first => {
            let child: Module = base.iter().cloned().chain([first.to_string()]).collect();
            return all
                .contains_key(&child)
                .then(|| base.into_iter().chain(parts.into_iter().map(Into::into)).collect());
        }
    }
    parts.remove(0);
    while parts.first() == Some(&"super") {
        base.pop();
        parts.remove(0);
    }
    Some(base.into_iter().chain(parts.into_iter().map(Into::into)).collect())
}

/// Which modules each module uses.
fn arrows(all: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let (mut uses, mut exports) = (Vec::new(), BTreeMap::new());
    for (module, code) in all {
        let mut rest = String::new();
        for statement in code.split_inclusive(';') {
            let is_use = |line: &str| {
                let after = line.trim_start().trim_start_matches("pub").trim_start();
                ["", "(crate)", "(super)"]
                    .iter()
                    .any(|of| after.strip_prefix(of).is_some_and(|it| it.trim().starts_with("use ")))
            };
            let begin = statement.lines().position(is_use);
            let Some(begin) = begin.filter(|_| statement.ends_with(';') && !statement.contains('"')) else {
                rest.push_str(statement);
                continue;
            };
            let tree = statement.lines().skip(begin).collect::<Vec<_>>().join(" ");
            let (before, tree) = tree.split_once("use ").unwrap();
            let mut paths = Vec::new();
            expand(tree.trim_end_matches(';'), &mut paths);
            for path in paths.iter().filter_map(|path| absolute(module, path, all)) {
                match before.trim().is_empty() {
                    true => uses.push((module, path)),
                    false => _ = exports.insert((module.clone(), path.last().unwrap().clone()), path),
                }
            }
        }
        for word in rest.split(|sign: char| !(sign.is_alphanumeric() || sign == '_' || sign == ':')) {
            if word.contains("::") && word.starts_with(|sign: char| sign.is_lowercase()) {
                uses.extend(absolute(module, word.trim_end_matches(':'), all).map(|path| (module, path)));
            }
        }
    }
    let mut arrows: BTreeMap<Module, BTreeSet<Module>> =
        all.keys().map(|module| (module.clone(), BTreeSet::new())).collect();
    for (module, mut path) in uses {
        let mut target = Vec::new();
        for _ in 0..8 {
            let known = (0..=path.len()).rev().find(|length| all.contains_key(&path[..*length])).unwrap();
            target = path[..known].to_vec();
            let export = path.get(known).and_then(|name| exports.get(&(target.clone(), name.clone())));
            let Some(export) = export.filter(|export| **export != path) else { break };
            path = export.iter().chain(&path[known + 1..]).cloned().collect();
        }
        if !target.starts_with(module) && !module.starts_with(&target) {
            arrows.get_mut(module).unwrap().insert(target);
        }
    }
    arrows
}

fn reached(from: &Module, arrows: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(arrows[module].iter().filter(|target| found.insert((*target).clone())));
    }
    found
}

#[test]
fn no_more_files_import_each_other_than_are_known_to() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in fs::read_dir(crates).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let mut all = BTreeMap::new();
        modules(&crates.join(&name).join("src"), &Vec::new(), &mut all);
        let for_tests: Vec<Module> = all.iter().flat_map(|(module, code)| modules_for_tests(module, code)).collect();
        all.retain(|module, _| !for_tests.iter().any(|tests| module.starts_with(tests)));
        let arrows = arrows(&all);
        assert!(all.len() < 3 || arrows.values().any(|targets| !targets.is_empty()), "no arrow found in {name}");
        let reached: BTreeMap<_, _> = all.keys().map(|module| (module, reached(module, &arrows))).collect();
        let circle = |module: &Module| -> BTreeSet<&Module> {
            reached
                .iter()
                .filter(|(other, back)| reached[module].contains(**other) && back.contains(module))
                .map(|(it, _)| *it)
                .collect()
        };
        let circles: BTreeSet<_> = all.keys().map(circle).filter(|circle| circle.len() > 1).collect();
        let mut sizes: Vec<_> = circles.iter().map(BTreeSet::len).collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let known = CIRCLES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, sizes)| sizes);
        assert_eq!(sizes, known, "circles of files in {name}: {circles:#?}");
    }
}
