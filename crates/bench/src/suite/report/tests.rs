//! The report as a whole, of results that were made up.

use super::*;
use crate::machine::MachineLoad;
use crate::measure::{Latencies, Second};
use crate::report::Settings;
use crate::run::Measured;
use crate::suite::compare;
use crate::suite::experiments;
use crate::suite::peer;
use crate::suite::result::{Measurement, runs_of};
use std::time::Duration;

/// A run of so many reads in two seconds.
pub(in crate::suite) fn run(cell: &Cell, operations: u64) -> RunResult {
    let mut reads = Latencies::new(Duration::from_secs(1));
    reads.record(Duration::from_micros(123), operations);
    run_of(cell, reads, operations)
}

fn run_of(cell: &Cell, reads: Latencies, operations: u64) -> RunResult {
    let writes = Latencies::new(Duration::from_secs(1));
    let (elapsed, cpu) = (Duration::from_secs(2), Duration::from_secs(1));
    // Seconds of a run differ by a tenth, so runs that differ by less are alike.
    let second = |second| Second {
        second,
        operations: operations * (19 + second) / 20,
        read_p99_ms: 1.0,
        write_p99_ms: 1.0,
        server_read_bytes: Some(0),
        server_written_bytes: Some(1_000_000),
    };
    let seconds = vec![second(0), second(2)];
    let measured = Measured { reads, writes, seconds, elapsed, cpu, last_error: None, machine: None };
    let settings = Settings {
        name: cell.id(),
        server: "here".into(),
        protocol: Some(cell.protocol),
        table: None,
        mix: cell.mix.clone(),
        distribution: cell.distribution,
        records: 1,
        fields: cell.table.fields,
        field_bytes: cell.table.field_bytes,
        processes: cell.processes,
        threads: cell.threads,
        pipeline: 1,
        batch: 1,
        rate: None,
        limit_ms: 10.0,
        warm_up_seconds: 0.0,
        seed: 1,
        server_cores: None,
        core: None,
        command: "tessera bench suite published --scale small --only x".into(),
    };
    RunResult::new(settings, &measured, Some(cpu))
}

fn measure_all(directory: &Path, operations: u64) {
    for cell in experiments::cells(&ALL, &Published::read()) {
        let mut result = CellResult::new(cell.clone());
        result.tessera = Measurement { runs: vec![run(&cell, operations)], ..Measurement::default() };
        result.peers.insert("redis-server 0".into(), result.tessera.clone());
        result.write(directory).unwrap();
    }
}

#[test]
fn every_published_figure_has_its_counterpart() {
    let directory = tempfile::TempDir::new().unwrap();
    measure_all(directory.path(), 24_690);
    write(directory.path()).unwrap();
    let markdown = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
    let published = Published::read();
    let rows = markdown.lines().filter(|line| line.contains("| Tessera") && line.contains("12,345")).count();
    assert_eq!(
        rows,
        published.versions.len()
            + published.limiter.len()
            + published.nubase.len()
            + experiments::MAP_REDUCE_NODES.len()
            // Three workloads through two protocols.
            + 6 * experiments::RETHINKDB_NODES.len()
    );
    let figures = markdown.lines().filter(|line| line.starts_with("![")).count();
    assert_eq!(figures, std::fs::read_dir(directory.path().join("figures")).unwrap().count());
    let queries = markdown.lines().filter(|line| line.starts_with("| Tessera |") && line.contains("| 12,345 |"));
    let queries: Vec<&str> = queries.filter(|line| line.contains(" | 59 |") || line.contains(" | 4.4 |")).collect();
    assert_eq!(queries.len(), 2, "the query on one node and on sixteen: {queries:?}");
    for experiment in ALL {
        assert!(markdown.contains(experiment.title()));
    }
    let page = std::fs::read_to_string(directory.path().join("index.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2 * figures, "for wide screens and for narrow ones");
}

/// What stands between double quotes after each occurrence of something.
fn quoted<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn the_page_needs_no_other_file_and_its_contents_lead_to_its_sections() {
    let directory = tempfile::TempDir::new().unwrap();
    measure_all(directory.path(), 24_690);
    write(directory.path()).unwrap();
    let page = std::fs::read_to_string(directory.path().join("index.html")).unwrap();
    for other in ["src=", "url(", "@import", "<script", "<link", "xlink"] {
        assert!(!page.contains(other), "{other}");
    }
    let anchors = quoted(&page, " id=\"");
    let links = quoted(&page, "href=\"");
    assert!(links.len() > ALL.len(), "{links:?}");
    for link in links {
        let anchor = link.strip_prefix('#').unwrap_or_else(|| panic!("{link} leads elsewhere"));
        assert!(anchors.contains(&anchor), "{link} leads nowhere");
    }
    // What is calculated is in one section, which says so first.
    let (measured, model) = page.split_once("A model of larger machines: calculated, not measured</h2>").unwrap();
    assert!(model.starts_with("<p class=\"note\">No figure of this section was measured."));
    assert!(!measured.contains("of the model") && model.contains("of the model"));
}

#[test]
fn what_more_nodes_cost_is_told_beside_what_more_processes_cost() {
    let directory = tempfile::TempDir::new().unwrap();
    let published = Published::read();
    let cells = Experiment::Scale.cells(&published);
    // A read of Tessera is dearer on seven nodes than on five: twice what it costs there, and 1.2 times that of the control.
    for cell in &cells {
        let is_largest = cell.cluster.nodes == 7;
        let mut result = CellResult::new(cell.clone());
        let of = |operations| Measurement { runs: vec![run(cell, operations)], ..Measurement::default() };
        result.tessera = of(if is_largest { 10_000 } else { 20_000 });
        let name = format!("redis-server 7.0, {}, volatile", peer::SPREAD);
        result.peers.insert(name, of(if is_largest { 50_000 } else { 60_000 }));
        result.write(directory.path()).unwrap();
    }
    write(directory.path()).unwrap();
    let markdown = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
    let told = "A read costs 2.00 times the CPU time on 7 nodes that it does on 5. Of as many redis-server processes under the same \
                clients, it costs 1.20 times.";
    assert!(markdown.contains(told), "{markdown}");
    assert!(markdown.contains(
        "| 2.00 × | CPU time of a read on seven nodes, as against five; as many redis-server processes: 1.20 × |"
    ));
    assert!(markdown.contains("(figures/scale-growth.svg)") && markdown.contains("That part is measured by a control"));
}

#[test]
fn cells_of_different_commits_are_not_told_to_differ() {
    let directory = tempfile::TempDir::new().unwrap();
    // Many partitions cost twice what few do; both are of one commit, or not.
    let told = |commit_of_many: &str| {
        for cell in &Experiment::Partitions.cells(&Published::read()) {
            let has_many = cell.table.partitions == 256;
            let mut measured = run(cell, if has_many { 10_000 } else { 20_000 });
            measured.host.tessera_commit = Some(if has_many { commit_of_many } else { "a" }.into());
            let tessera = Measurement { runs: vec![measured], ..Measurement::default() };
            CellResult { tessera, ..CellResult::new(cell.clone()) }.write(directory.path()).unwrap();
        }
        write(directory.path()).unwrap();
        std::fs::read_to_string(directory.path().join("README.md"))
            .unwrap()
            .contains("256 partitions instead of 64: 0.50")
    };
    assert_eq!([told("a"), told("b")], [true, false]);
}

#[test]
fn results_say_of_which_commits_they_are() {
    let directory = tempfile::TempDir::new().unwrap();
    let cells = Experiment::Partitions.cells(&Published::read());
    for (number, cell) in cells.iter().enumerate() {
        let mut result = CellResult::new(cell.clone());
        let mut measured = run(cell, 1_000);
        let (commit, day) = if number == 0 { (Some("0123abcd"), Some("2026-11-27")) } else { (None, None) };
        measured.host.tessera_commit = commit.map(String::from);
        measured.measured_on = day.map(String::from);
        result.tessera = Measurement { runs: vec![measured], ..Measurement::default() };
        result.write(directory.path()).unwrap();
    }
    write(directory.path()).unwrap();
    let markdown = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
    let told = format!(
        "Measured: {} cells of a commit and a day that they do not name, 1 cell of commit `0123abcd` on 2026-11-27. ",
        cells.len() - 1
    );
    assert!(markdown.matches(&told).count() == 2, "of all, and of the experiment: {markdown}");
    assert!(markdown.contains("| 0123abcd | 2026-11-27 | 1 |") && markdown.contains("| not named | not named |"));
}

#[test]
fn a_run_is_a_page_of_its_own() {
    let cells = Experiment::Partitions.cells(&Published::read());
    let page = crate::report::html(&run(&cells[0], 24_690));
    // Throughput and latency over time; all latencies were the same, so they have no distribution.
    assert_eq!((page.matches("<svg").count(), page.matches("nothing was recorded").count()), (4, 1));
    assert!(page.contains("12345") && page.contains(&cells[0].id()) && !page.contains("href="));
}

/// A quick report once had the title of the whole one, rows without a figure, and shares of a single point.
#[test]
fn a_quick_report_says_so_and_shows_only_what_was_measured() {
    let directory = tempfile::TempDir::new().unwrap();
    let cell = experiments::latency("read", "3*50");
    let machine = Some(MachineLoad { others_share: Some(0.5), steal_share: 0.0 });
    let runs = vec![RunResult { machine, ..run(&cell, 24_690) }];
    let tessera = Measurement { runs, ..Measurement::default() };
    let measured = CellResult { tessera, is_quick: true, ..CellResult::new(cell) };
    measured.write(directory.path()).unwrap();
    write(directory.path()).unwrap();
    let markdown = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
    let title = "# A quick look at the published experiments, measured here\n\n> This is the report of a quick suite";
    assert!(markdown.starts_with(title), "{markdown}");
    assert!(markdown.contains("\n> In 1 of 1 cells the machine was busy with something else"), "{markdown}");
    assert!(!markdown.contains(&"| - ".repeat(9)), "{markdown}");
    assert!(markdown.contains("### Pegasus 2.4.0") && !markdown.contains("### Pegasus 1.12.2"), "{markdown}");
    let figures = quoted(&markdown.replace(')', "\""), "(figures/").join(" ");
    assert!(figures.contains("latency-read-p99.svg"), "{figures}");
    assert!(!figures.contains("latency-read-qps") && !figures.contains("latency-write"), "{figures}");

    CellResult { is_quick: false, ..measured }.write(directory.path()).unwrap();
    write(directory.path()).unwrap();
    let markdown = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
    assert!(markdown.starts_with("# A part of the published experiments") && !markdown.contains("quick suite"));
}

/// The files of cells were once refused.
#[test]
fn runs_are_read_from_files_of_cells_and_of_runs() {
    let directory = tempfile::TempDir::new().unwrap();
    let cell = experiments::latency("read", "3*50");
    let of = |operations| Measurement { runs: vec![run(&cell, operations)], ..Measurement::default() };
    let peers = [("redis-server 7".to_string(), of(2_000))].into();
    let result = CellResult { tessera: of(1_000), peers, ..CellResult::new(cell.clone()) };
    result.write(directory.path()).unwrap();
    let runs = runs_of(&CellResult::path(directory.path(), &cell)).unwrap();
    let told: Vec<_> = runs.iter().map(|run| (run.settings.name.clone(), run.operations)).collect();
    assert_eq!(told, [(cell.id(), 1_000), (format!("{}: redis-server 7", cell.id()), 2_000)]);
    let file = directory.path().join("run.json");
    std::fs::write(&file, serde_json::to_vec(&runs[1]).unwrap()).unwrap();
    assert_eq!(runs_of(&file).unwrap()[0].operations, 2_000);
    std::fs::write(&file, "{}").unwrap();
    assert!(runs_of(&file).unwrap_err().to_string().contains("no result of this version"));
}

/// What reads nothing is quick, and once did not say so.
#[test]
fn reads_that_find_nothing_are_told() {
    let cells = Experiment::Partitions.cells(&Published::read());
    let of = |absent: u64| {
        let mut reads = Latencies::new(Duration::from_secs(1));
        reads.record(Duration::from_micros(123), 1_000);
        reads.looked_up(1_000, absent);
        run_of(&cells[0], reads, 1_000)
    };
    let (none, most) = (of(1_000), of(10));
    assert_eq!((none.found_share, most.found_share), (Some(0.0), Some(0.99)));
    assert!(none.warnings.iter().any(|warning| warning.starts_with("reads found 0.0 % of the records")));
    assert!(!most.warnings.iter().any(|warning| warning.contains("reads found")));
    let ycsb = crate::report::ycsb(&none, "UPDATE");
    assert!(ycsb.contains("[READ], Return=OK, 0\n[READ], Return=NOT_FOUND, 1000\n"), "{ycsb}");
    let table = crate::report::table(&[none, most, run(&cells[0], 1_000)]);
    let shares: Vec<&str> = table.lines().skip(2).filter_map(|line| line.rsplit(" | ").next()).collect();
    assert_eq!(shares, ["0.0 % |", "99.0 % |", "- |"]);
}

#[test]
fn what_changed_by_more_than_noise_is_told() {
    let [before, same, after] = [(); 3].map(|()| tempfile::TempDir::new().unwrap());
    measure_all(before.path(), 10_000);
    measure_all(same.path(), 10_500);
    measure_all(after.path(), 20_000);
    assert!(compare(before.path(), same.path()).unwrap().contains("; 0 changed"));
    let changes = compare(before.path(), after.path()).unwrap();
    assert!(changes.contains("+100 %") && !changes.contains("; 0 changed"), "{changes}");
}

/// A search ends with a run at a fixed rate, whose seconds do not differ: that was once told as no noise at all.
#[test]
fn noise_that_is_not_known_and_machines_that_differ_are_told() {
    let search = experiments::nubase("MDB", "GET", 1_024);
    let measured = |operations: u64, cores| {
        let directory = tempfile::TempDir::new().unwrap();
        let mut run = run(&search, operations);
        run.host.cores = cores;
        run.timeline.iter_mut().for_each(|second| second.operations = operations / 2);
        let tessera = Measurement { runs: vec![run], ..Measurement::default() };
        CellResult { tessera, ..CellResult::new(search.clone()) }.write(directory.path()).unwrap();
        directory
    };
    let [before, similar, elsewhere] = [measured(10_000, 4), measured(10_500, 4), measured(20_000, 64)];
    let text = compare(before.path(), similar.path()).unwrap();
    assert!(text.contains("1 cells are in both; 0 changed") && !text.contains("the same machine"), "{text}");
    let text = compare(before.path(), elsewhere.path()).unwrap();
    assert!(text.contains("| not known |\n") && text.contains("The noise of 1 of them is not known"), "{text}");
    assert!(text.starts_with("> They were not measured on the same machine"), "{text}");
    assert!(text.contains(" with 4 cores and ") && text.contains(" with 64 cores and "), "{text}");
}

#[test]
fn results_of_another_version_are_refused() {
    let directory = tempfile::TempDir::new().unwrap();
    let cell = experiments::nubase_steady();
    let result = CellResult { version: 0, ..CellResult::new(cell) };
    result.write(directory.path()).unwrap();
    assert!(write(directory.path()).unwrap_err().to_string().contains("no result of this version"));
}

#[test]
fn a_directory_without_results_says_so() {
    let directory = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(directory.path().join("cells")).unwrap();
    assert!(write(directory.path()).is_err());
}
