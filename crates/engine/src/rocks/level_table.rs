//! Reads RocksDB's compaction statistics, which it gives as a text table only.

use crate::LevelStatistics;

/// The rows `L0`, `L1`, ... of the first table of the property `rocksdb.cfstats-no-file-histogram`. Columns are found
/// by their titles, so that a version of RocksDB with more of them is read as well; sizes come as "12.50 MB" and counts
/// as "170K".
pub(super) fn parse(text: &str) -> Vec<LevelStatistics> {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("Level"));
    let Some(header) = lines.next() else { return Vec::new() };
    // "Size" has a unit of its own in each row, which makes one word more than titles.
    let titles: Vec<&str> = header
        .split_whitespace()
        .flat_map(|title| if title == "Size" { vec!["Size", "unit"] } else { vec![title] })
        .collect();
    let column = |title: &str| titles.iter().position(|candidate| *candidate == title);
    lines
        .take_while(|line| !line.trim_start().starts_with("Sum"))
        .filter_map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let cell = |title: &str| column(title).and_then(|at| cells.get(at).copied());
            let number = |title: &str| cell(title).and_then(quantity).unwrap_or(0.0);
            let level = cell("Level").filter(|level| level.starts_with('L'))?;
            let files = cell("Files").and_then(|files| files.split('/').next()).and_then(|files| files.parse().ok());
            Some(LevelStatistics {
                level: level.to_string(),
                files: files.unwrap_or(0),
                size_bytes: (number("Size") * unit_bytes(cell("unit").unwrap_or("B"))) as u64,
                score: number("Score"),
                read_gigabytes: number("Read(GB)"),
                write_gigabytes: number("Write(GB)"),
                write_amplification: number("W-Amp"),
                keys_in: number("KeyIn") as u64,
                keys_dropped: number("KeyDrop") as u64,
            })
        })
        .collect()
}

fn unit_bytes(unit: &str) -> f64 {
    match unit {
        "KB" => 1024.0,
        "MB" => 1024.0 * 1024.0,
        "GB" => 1024.0 * 1024.0 * 1024.0,
        "TB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => 1.0,
    }
}

/// A number with an optional suffix K, M or G of thousands.
fn quantity(text: &str) -> Option<f64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        b'G' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    Some(digits.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_by_title() {
        let text = "\n** Compaction Stats [t] **\n\
            Level    Files   Size     Score Read(GB)  Rn(GB) Rnp1(GB) Write(GB) Wnew(GB) Moved(GB) W-Amp Rd(MB/s) Wr(MB/s) Comp(sec) CompMergeCPU(sec) Comp(cnt) Avg(sec) KeyIn KeyDrop Rblob(GB) Wblob(GB)\n\
            ---------------------------------\n\
            L0      2/0    12.50 MB   0.5      0.1     0.0      0.0       0.3      0.3       0.0   1.0      0.0     95.1      0.13              0.10         2    0.066       0      0       0.0       0.0\n\
            L1      1/1     1.00 KB   0.0      0.0     0.0      0.0       0.0      0.0       0.0   2.5      0.0      0.0      0.00              0.00         1    0.002    170K   1200       0.0       0.0\n\
            Sum      3/0    12.50 MB   0.0      0.0     0.0      0.0       0.3      0.3       0.0   1.0      0.0     95.1      0.13              0.10         2    0.066       0      0       0.0       0.0\n";
        let levels = parse(text);
        assert_eq!(levels.len(), 2);
        assert_eq!((levels[0].level.as_str(), levels[0].files, levels[0].size_bytes), ("L0", 2, 13_107_200));
        assert_eq!((levels[1].keys_in, levels[1].keys_dropped), (170_000, 1_200));
        assert_eq!((levels[0].score, levels[1].write_amplification), (0.5, 2.5));
        assert_eq!(parse("nothing"), []);
    }
}
