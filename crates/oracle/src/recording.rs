//! The recordings as they lie in the tree.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::{JSON_DEPTH, Json, parse_json};

/// What was recorded about one kind of terms.
pub struct Area {
    /// The name, which is that of the recording's file.
    pub name: String,
    path: PathBuf,
    bytes: u64,
}

/// Steps that run in order, beginning with an empty database.
pub struct Scenario {
    /// The name, unique in its area.
    pub name: String,
    /// The queries with the recorded answers, in their order.
    pub steps: Vec<Json>,
}

/// All areas, the one with the largest recording first.
pub fn areas() -> Vec<Area> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    let area = |entry: fs::DirEntry| {
        let path = entry.path();
        let name = path.file_name().unwrap().to_str().unwrap().split('.').next().unwrap().to_string();
        Area { name, bytes: entry.metadata().unwrap().len(), path }
    };
    let mut areas: Vec<Area> = fs::read_dir(directory).unwrap().map(|entry| area(entry.unwrap())).collect();
    areas.sort_by(|one, other| (other.bytes, &one.name).cmp(&(one.bytes, &other.name)));
    areas
}

/// The steps of an area by its name.
pub fn lines(area: &str) -> Vec<Json> {
    areas().iter().find(|own| own.name == area).unwrap_or_else(|| panic!("no area {area}")).steps()
}

impl Area {
    fn steps(&self) -> Vec<Json> {
        let mut text = String::new();
        flate2::read::GzDecoder::new(fs::File::open(&self.path).unwrap()).read_to_string(&mut text).unwrap();
        text.lines().map(|line| parse_json(line, JSON_DEPTH).unwrap()).collect()
    }

    /// The area's scenarios, in the order in which they were recorded.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let mut scenarios: Vec<Scenario> = Vec::new();
        for step in self.steps() {
            let name = text(&step, "s").unwrap().to_string();
            match scenarios.last_mut() {
                Some(last) if last.name == name => last.steps.push(step),
                _ => scenarios.push(Scenario { name, steps: vec![step] }),
            }
        }
        scenarios
    }
}

/// A field that is a text.
pub fn text<'a>(json: &'a Json, name: &str) -> Option<&'a str> {
    match json.get(name) {
        Some(Json::String(text)) => Some(text),
        _ => None,
    }
}
