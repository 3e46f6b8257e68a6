//! The table, and what each lock does not promise.

use crate::contender::Contender;
use crate::rounds::Row;
use crate::summary::Summary;

pub(crate) fn table(contenders: &[Contender], rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let title = match row.clients {
            1 => "one client".to_owned(),
            clients => format!("{clients} clients, a lock each"),
        };
        text += &format!("{title:<30}{:>10}{:>12}   {}\n", "per second", "for each", "in units of this crate");
        for (number, contender) in contenders.iter().enumerate() {
            let (Some(rate), Some(ratio)) = (row.rate(number), row.ratio(number)) else { continue };
            let microseconds = 1e6 * row.clients as f64 / rate.median;
            let Summary { median, low, high } = ratio;
            text += &format!(
                "{:<30}{:>10.0}{microseconds:>9.0} µs   {median:.2} ({low:.2}-{high:.2})\n",
                contender.name, rate.median
            );
        }
        text.push('\n');
    }
    text += "Uncontended locks and releases: medians of rounds, with the range from the 10th to the 90th percentile.\n";
    text += "\nOn the disk, by the defaults of the packages:\n";
    for Contender { name, durability, .. } in contenders {
        text += &format!("* {name}: {durability}.\n");
    }
    text += "\nNot promised:\n";
    for Contender { name, not_promised, .. } in contenders {
        text += &format!("* {name}: {not_promised}.\n");
    }
    text.trim_end().to_owned()
}
