//! Workloads as YCSB's property files describe them.
//!
//! Read are the properties of YCSB's core workload that mean something here: `recordcount`, `operationcount`, `threadcount`,
//! `target`, `maxexecutiontime`, `fieldcount`, `fieldlength`, `readallfields`, `writeallfields`, `requestdistribution`,
//! `insertorder`, `zeropadding`, and the proportions; and of the Redis binding, where the server is. Others are
//! [ignored](Properties::ignored), as bindings ignore what is for others; those that would make the result another one are
//! refused unless they say what is done anyway.

use super::{KeyDistribution, KeyNames, Mix, RecordShape};
use anyhow::{Context, bail};
use std::collections::BTreeMap;

/// The workloads that come with YCSB, by their file names.
const CORE: [(&str, &str); 6] = [
    ("workloada", "readproportion=0.5\nupdateproportion=0.5"),
    ("workloadb", "readproportion=0.95\nupdateproportion=0.05"),
    ("workloadc", "readproportion=1\nupdateproportion=0"),
    ("workloadd", "readproportion=0.95\nupdateproportion=0\ninsertproportion=0.05\nrequestdistribution=latest"),
    ("workloade", "readproportion=0\nupdateproportion=0\nscanproportion=0.95\ninsertproportion=0.05"),
    ("workloadf", "readproportion=0.5\nupdateproportion=0\nreadmodifywriteproportion=0.5"),
];

/// Properties with one value only, YCSB's default.
const FIXED: [(&str, &str); 9] = [
    ("fieldlengthdistribution", "constant"),
    ("fieldnameprefix", "field"),
    ("insertstart", "0"),
    ("hotspotdatafraction", "0.2"),
    ("hotspotopnfraction", "0.8"),
    ("exponential.percentile", "95"),
    ("exponential.frac", "0.8571428571"),
    ("dataintegrity", "false"),
    ("deleteproportion", "0"),
];

/// Properties of which the value is read.
const READ: [&str; 21] = [
    "recordcount",
    "operationcount",
    "threadcount",
    "target",
    "maxexecutiontime",
    "fieldcount",
    "fieldlength",
    "readallfields",
    "writeallfields",
    "requestdistribution",
    "insertorder",
    "zeropadding",
    "readproportion",
    "updateproportion",
    "insertproportion",
    "readmodifywriteproportion",
    "scanproportion",
    "redis.host",
    "redis.port",
    "redis.password",
    "redis.cluster",
];

/// Properties that choose a class of YCSB's, in the place of which there is one thing here.
const CLASSES: [&str; 4] = ["workload", "db", "measurementtype", "exporter"];

/// More would make keys that servers refuse.
const MOST_DIGITS: u64 = 1_000;

/// What all of them say.
const CORE_COMMON: &str = "recordcount=1000\noperationcount=1000\nrequestdistribution=zipfian";

/// Properties; later ones take the place of earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Properties(BTreeMap<String, String>);

/// A workload that properties describe.
#[derive(Clone, Debug)]
pub struct YcsbWorkload {
    pub mix: Mix,
    pub distribution: KeyDistribution,
    pub records: u64,
    pub operations: Option<u64>,
    pub shape: RecordShape,
    pub threads: Option<usize>,
    /// Operations per second.
    pub target: Option<f64>,
    pub seconds: Option<f64>,
}

/// Where the server is, as far as properties of YCSB's Redis binding say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct YcsbServer {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub password: Option<String>,
    pub is_cluster: bool,
}

impl Properties {
    /// Adds those of a file, or of one of YCSB's own workloads if there is no file of that name.
    ///
    /// # Errors
    /// If there is neither.
    pub fn add_file(&mut self, name: &str) -> anyhow::Result<()> {
        match (std::fs::read_to_string(name), CORE.iter().find(|(core, _)| *core == name)) {
            (Ok(text), _) => self.add(&text),
            (Err(_), Some((_, text))) => {
                self.add(CORE_COMMON);
                self.add(text);
            }
            (Err(error), None) => return Err(error).with_context(|| name.to_string()),
        }
        Ok(())
    }

    /// Adds lines of `key=value`; lines that begin with `#` or `!` are comments.
    pub fn add(&mut self, text: &str) {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '!']));
        for (key, value) in lines.filter_map(|line| line.split_once(['=', ':'])) {
            self.0.insert(key.trim().to_string(), value.trim().to_string());
        }
    }

    fn number(&self, key: &str) -> anyhow::Result<Option<f64>> {
        let parse = |value: &String| {
            let number = value.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
            number.with_context(|| format!("{key}={value} is no number"))
        };
        self.0.get(key).map(parse).transpose()
    }

    fn is(&self, key: &str, default: bool) -> bool {
        self.0.get(key).map_or(default, |value| value.eq_ignore_ascii_case("true"))
    }

    /// Where the server is, if it is said.
    ///
    /// # Errors
    /// If the port is none.
    pub fn server(&self) -> anyhow::Result<YcsbServer> {
        let word = |key: &str| self.0.get(key).filter(|value| !value.is_empty()).cloned();
        let port = |value: String| value.parse().with_context(|| format!("redis.port={value} is no port"));
        Ok(YcsbServer {
            host: word("redis.host"),
            port: word("redis.port").map(port).transpose()?,
            password: word("redis.password"),
            is_cluster: self.is("redis.cluster", false),
        })
    }

    /// Names of properties that mean nothing here.
    pub fn ignored(&self) -> impl Iterator<Item = &str> {
        let means_something =
            |key: &str| READ.contains(&key) || CLASSES.contains(&key) || FIXED.iter().any(|(fixed, _)| *fixed == key);
        self.0.keys().map(String::as_str).filter(move |key| !means_something(key))
    }

    /// The workload, with YCSB's defaults for what is not said.
    ///
    /// # Errors
    /// If a value is none, or asks for something that is not there.
    pub fn workload(&self) -> anyhow::Result<YcsbWorkload> {
        let share = |key: &str, default: f64| anyhow::Ok(self.number(key)?.unwrap_or(default));
        let mix = Mix::of_proportions(
            share("readproportion", 0.95)?,
            share("updateproportion", 0.05)?,
            share("insertproportion", 0.0)?,
            share("readmodifywriteproportion", 0.0)?,
            share("scanproportion", 0.0)?,
        )?;
        let word = |key: &str, default: &'static str| self.0.get(key).map_or(default, String::as_str).to_lowercase();
        let distribution = match word("requestdistribution", "uniform").as_str() {
            "uniform" => KeyDistribution::Uniform,
            "zipfian" => KeyDistribution::Zipfian,
            "latest" => KeyDistribution::Latest,
            "hotspot" => KeyDistribution::Hotspot,
            "sequential" => KeyDistribution::Sequential,
            "exponential" => KeyDistribution::Exponential,
            other => bail!("requestdistribution={other} is not known"),
        };
        let are_ordered = match word("insertorder", "hashed").as_str() {
            "hashed" => false,
            "ordered" => true,
            other => bail!("insertorder={other} is not known; hashed and ordered are"),
        };
        let fixed = FIXED.iter().find(|(key, only)| word(key, only) != *only);
        if let Some((key, only)) = fixed {
            bail!("{key}={} is not there; only {only} is", word(key, only));
        }
        let count = |key: &str| anyhow::Ok(self.number(key)?.map(|number| number as u64).filter(|number| *number > 0));
        let fields = count("fieldcount")?.unwrap_or(10) as usize;
        Ok(YcsbWorkload {
            mix,
            distribution,
            records: count("recordcount")?.context("recordcount is not given")?,
            operations: count("operationcount")?,
            shape: RecordShape {
                fields,
                field_bytes: count("fieldlength")?.unwrap_or(100) as usize,
                reads_all: self.is("readallfields", true),
                writes_all: self.is("writeallfields", false),
                names: KeyNames { are_ordered, digits: count("zeropadding")?.unwrap_or(1).min(MOST_DIGITS) as usize },
            },
            threads: count("threadcount")?.map(|threads| threads as usize),
            target: self.number("target")?.filter(|target| *target > 0.0),
            seconds: self.number("maxexecutiontime")?.filter(|seconds| *seconds > 0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_redis_binding_says_where_the_server_is_and_the_rest_is_named() {
        let mut properties = Properties::default();
        assert_eq!(properties.server().unwrap(), YcsbServer::default());
        properties.add(
            "redis.host=db.example\nredis.port=6380\nredis.password=secret\nredis.timeout=10\ndb=x\nmongodb.url=y",
        );
        let server = properties.server().unwrap();
        assert_eq!((server.host.as_deref(), server.port), (Some("db.example"), Some(6380)));
        assert_eq!((server.password.as_deref(), server.is_cluster), (Some("secret"), false));
        assert_eq!(properties.ignored().collect::<Vec<_>>(), ["mongodb.url", "redis.timeout"]);
        properties.add("redis.cluster=true\nredis.port=many");
        assert!(properties.server().is_err());
    }

    #[test]
    fn files_and_single_properties_make_a_workload() {
        let mut properties = Properties::default();
        properties.add("# a comment\nrecordcount=5000\n readproportion = 0.2\nupdateproportion: 0.8\nworkload=x.Y");
        properties.add("fieldcount=3\nfieldlength=7\nrequestdistribution=exponential\nreadallfields=false\ntarget=50");
        let workload = properties.workload().unwrap();
        assert_eq!((workload.records, workload.shape.fields, workload.shape.field_bytes), (5_000, 3, 7));
        assert_eq!((workload.shape.reads_all, workload.shape.writes_all), (false, false));
        assert_eq!((workload.distribution, workload.target), (KeyDistribution::Exponential, Some(50.0)));
        properties.add("recordcount=6000");
        assert_eq!(properties.workload().unwrap().records, 6_000);
        for bad in [
            "readproportion=many",
            "requestdistribution=odd",
            "insertorder=random",
            "fieldlengthdistribution=zipfian",
            "hotspotdatafraction=0.5",
        ] {
            let mut properties = properties.clone();
            properties.add(bad);
            assert!(properties.workload().is_err(), "{bad}");
        }
    }

    /// As YCSB's `CoreWorkload.buildKeyName` does it.
    #[test]
    fn records_are_named_as_ycsb_names_them() {
        let name = |properties: &str| {
            let mut all = Properties::default();
            all.add(&format!("recordcount=1\n{properties}"));
            let mut key = Vec::new();
            all.workload().unwrap().shape.names.write(12, &mut key);
            String::from_utf8(key).unwrap()
        };
        assert_eq!(name("insertorder=ordered"), "user12");
        assert_eq!(name("insertorder=ordered\nzeropadding=6"), "user000012");
        assert_eq!(name(""), format!("user{}", super::super::keys::fnv1a(12)));
    }

    #[test]
    fn ycsbs_own_workloads_are_known_by_name() {
        for (name, _) in CORE {
            let mut properties = Properties::default();
            properties.add_file(name).unwrap();
            let workload = properties.workload().unwrap();
            assert_eq!((workload.records, workload.operations, workload.shape.fields), (1_000, Some(1_000), 10));
            assert_eq!(workload.mix.scans(), name == "workloade");
        }
        assert!(Properties::default().add_file("no-such-workload").is_err());
    }
}
