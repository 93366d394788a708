//! `tessera recover`: an operator has the nodes that are left go on without those that are lost for good.

use crate::StartArgs;
use crate::exit::ExitError;
use clap::Args;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tessera_cluster::{Catalog, Lack, Outcome, RecoveredPartition, Recovery, Survey, load_json, save_json};
use tessera_node::{RecoverError, StoppedNode};
use tessera_types::{Acks, NodeId};

pub const HELP: &str = "\
A cluster agrees on everything by majorities. If a majority of the nodes that hold a partition,
or the catalog, is gone for good (one of two nodes has lost its disk, for instance), nobody can
lead it any more. This command makes the nodes that are left go on alone. It is to be given with
the node stopped, says what may be lost, and changes nothing without --yes.

One node is left:
  tessera recover --data-dir data1 --lost 2         says what would be done
  tessera recover --data-dir data1 --lost 2 --yes   writes it down; the next start carries it out
  tessera start --data-dir data1

Several nodes are left: with all of them stopped, write a survey of each, copy all surveys to
each, and give the same command on each before any is started:
  tessera recover --data-dir data1 --write-survey 1.json
  tessera recover --data-dir data1 --lost 3 --lost 4 --survey 1.json --survey 2.json --yes

The nodes named as lost can never come back with the data that they had: the cluster gets another
name, and refuses them. Start them with empty data directories to have them join as new nodes.
See docs/guide/operations.md.";

/// How long to wait for an answer from a node that is named as lost.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Args)]
pub struct RecoverArgs {
    /// Configuration file that the node is started with
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where the node keeps its data [default: data]
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Number of a node that is gone for good; repeat it for each
    #[arg(long, value_name = "NODE", required_unless_present = "write_survey")]
    lost: Vec<u32>,
    /// File with the survey of a remaining node, this node included; repeat it for each. Not needed if only this node remains
    #[arg(long, value_name = "FILE")]
    survey: Vec<PathBuf>,
    /// Write a survey of this node's data directory to this file, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lost", "survey", "yes"])]
    write_survey: Option<PathBuf>,
    /// Have the next start of the node carry the decision out; without this, it is only shown
    #[arg(long)]
    yes: bool,
    /// Agree that partitions of which no copy is left start again empty
    #[arg(long)]
    begin_anew: bool,
    /// Continue although somebody answers at the address of a node that is named as lost
    #[arg(long)]
    even_if_it_answers: bool,
    /// Print JSON: every partition with its last remaining entry, and with the entry up to which nothing can be missing
    #[arg(long)]
    json: bool,
}

fn refused(error: RecoverError) -> ExitError {
    match error {
        RecoverError::Undecided(error) => ExitError::Other(error.to_string()),
        error @ (RecoverError::NotAmongSurveys(_) | RecoverError::SurveyOutdated) => {
            ExitError::Other(error.to_string())
        }
        error => ExitError::DataDirectory(error.to_string()),
    }
}

pub fn run(args: &RecoverArgs) -> Result<(), ExitError> {
    let start = StartArgs { config: args.config.clone(), data_dir: args.data_dir.clone(), ..StartArgs::default() };
    let directory = start.load()?.data_dir;
    let node = StoppedNode::open(&directory).map_err(refused)?;
    let own = node.survey().map_err(refused)?;
    if let Some(path) = &args.write_survey {
        save_json(path, &own).map_err(|error| ExitError::Other(format!("{}: {error}", path.display())))?;
        println!("wrote what node {} holds to {}; start the node only after the recovery", own.node, path.display());
        return Ok(());
    }
    let surveys = args.survey.iter().map(|path| read_survey(path)).collect::<Result<Vec<_>, _>>()?;
    let lost: BTreeSet<_> = args.lost.iter().copied().map(NodeId).collect();
    let catalog = own.catalog.catalog.clone();
    let recovery = StoppedNode::decide(own, &surveys, &lost).map_err(refused)?;
    if args.json {
        println!("{:#}", to_json(&recovery));
    } else {
        print(&recovery, &catalog, &directory);
    }
    let answering = lost.iter().filter_map(|node| answers(&catalog, *node));
    for (node, address) in answering.collect::<Vec<_>>() {
        let said = format!(
            "somebody answers at {address}, the address of node {node}: a node that runs is not lost. Stop it for good first, \
             or say --even-if-it-answers if that is another program"
        );
        match args.even_if_it_answers {
            true => eprintln!("warning: {said}"),
            false => return Err(ExitError::Other(said)),
        }
    }
    let gone = recovery.partitions.iter().filter(|it| it.outcome == Outcome::BeginsAnew { had_log: true }).count();
    if gone > 0 && !args.begin_anew {
        return Err(ExitError::Other(format!(
            "no copy is left of {gone} partitions: their records are lost. Look for the disks of the nodes that held them; to \
             have them start again empty, say --begin-anew. Nothing was changed"
        )));
    }
    if !args.yes {
        eprintln!("Nothing was changed. To go on like this, give the same command with --yes.");
        return Ok(());
    }
    if node.due().map_err(refused)?.is_some_and(|before| before.cluster != recovery.cluster) {
        eprintln!("This takes the place of what was written down before and not carried out.");
    }
    node.write_down(&recovery).map_err(refused)?;
    eprintln!(
        "Written down in {}. The next start of the node carries it out; removing that file before undoes it.",
        directory.join("recovery.json").display()
    );
    let others = recovery.left.iter().filter(|left| **left != node.node());
    let others: Vec<_> = others.map(ToString::to_string).collect();
    if !others.is_empty() {
        eprintln!(
            "Before any node is started, give the same command with the same surveys on the other nodes that are left: {}. It \
             must print the same new name of the cluster there.",
            others.join(", ")
        );
    }
    Ok(())
}

fn read_survey(path: &Path) -> Result<Survey, ExitError> {
    let survey = load_json(path).map_err(|error| ExitError::Other(format!("{}: {error}", path.display())))?;
    survey.ok_or_else(|| ExitError::Other(format!("there is no file {}", path.display())))
}

/// The address at which a node answers, if it does.
fn answers(catalog: &Catalog, node: NodeId) -> Option<(NodeId, String)> {
    let address = catalog.node(node)?.site.peer.clone();
    let found = address.to_socket_addrs().ok()?;
    found.into_iter().any(|it| TcpStream::connect_timeout(&it, PATIENCE).is_ok()).then_some((node, address))
}

fn to_json(recovery: &Recovery) -> serde_json::Value {
    let Recovery { from, cluster, lost, left, partitions, catalog_lacks, .. } = recovery;
    json!({
        "from_cluster": from,
        "cluster": cluster,
        "lost": lost,
        "left": left,
        "catalog_lacks": catalog_lacks,
        "partitions": partitions,
    })
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn print(recovery: &Recovery, catalog: &Catalog, directory: &Path) {
    println!("data directory  {}", directory.display());
    println!("cluster         {}, from now on {}", recovery.from, recovery.cluster);
    for node in recovery.lost.iter().filter_map(|node| catalog.node(*node)) {
        println!("lost for good   node {} ({})", node.id, node.site.peer);
    }
    println!("goes on         node {}", list(&recovery.left));
    match recovery.catalog_lacks {
        None => println!("catalog         has everything that was agreed on"),
        Some(lack) => println!("catalog         may lack the latest changes of tables and nodes: {}", words(lack)),
    }
    let mut tables: BTreeMap<_, Vec<&RecoveredPartition>> = BTreeMap::new();
    for partition in &recovery.partitions {
        tables.entry(partition.table).or_default().push(partition);
    }
    for (table, partitions) in tables {
        let count = |is_it: &dyn Fn(&Outcome) -> bool| partitions.iter().filter(|it| is_it(&it.outcome)).count();
        println!("table {}, {} partitions:", partitions[0].name, partitions.len());
        let groups: [(usize, &str); 5] = [
            (count(&|it| *it == Outcome::KeepsMajority), "keep a majority of their replicas and go on as ever"),
            (
                count(&|it| matches!(it, Outcome::GoesOn { lacks: None, .. })),
                "go on with one replica each, which has every write that a majority acknowledged",
            ),
            (
                count(&|it| matches!(it, Outcome::GoesOn { lacks: Some(_), .. })),
                "go on with one replica each, which MAY LACK acknowledged writes:",
            ),
            (
                count(&|it| *it == Outcome::BeginsAnew { had_log: true }),
                "have no copy left: ALL THEIR RECORDS ARE LOST, they start again empty",
            ),
            (
                count(&|it| *it == Outcome::BeginsAnew { had_log: false }),
                "start again empty, as partitions with durability none do whenever their nodes were stopped",
            ),
        ];
        for (number, said) in groups.into_iter().filter(|(number, _)| *number > 0) {
            println!("  {number:>5} {said}");
            if said.ends_with(':') {
                partitions.iter().for_each(|it| print_lacking(it));
            }
        }
        let has_single = catalog.get(table).is_some_and(|entry| entry.settings.acks == Acks::Single);
        if has_single {
            println!(
                "        it acknowledges what one replica has (acks single): such writes may have been on a lost node only"
            );
        }
    }
}

fn print_lacking(it: &RecoveredPartition) {
    if let Outcome::GoesOn { replica, end, committed, lacks: Some(lack) } = &it.outcome {
        let (partition, (term, index)) = (it.partition, end);
        println!(
            "        partition {partition}: node {} has the log up to entry {index} of term {term}; nothing is missing up to entry \
             {committed}; {}",
            replica.node,
            words(*lack)
        );
    }
}

fn words(lack: Lack) -> &'static str {
    match lack {
        Lack::MajorityLost => "a majority that acknowledged a write may consist of nodes that are lost",
        Lack::MembersChanging => "its replicas were being moved, so who had to acknowledge is not certain",
        Lack::PowerCut => "the machine went down, and what was not yet fsynced is lost (durability soft)",
        Lack::TakingSnapshot => "its records were about to be replaced by another replica's",
    }
}
