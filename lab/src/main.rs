//! `lab/run` calls this; see `lab/README.md`.

use std::fs;
use std::path::Path;
use std::time::Instant;

use lab::faults::FAULTS;
use lab::machine::Machine;
use lab::play::{Program, play};
use lab::ways::{WAYS, find};
use lab::{Outcome, expect, java, json, packages, page, table};

const USAGE: &str =
    "usage: lab play|packages [--look] [--short] [--only-faults] [--series LETTER] [--ways ID,…] [--faults ID,…]
       lab picture FILE.md";
const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/lab");

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = arguments.split_first().ok_or(USAGE)?;
    match verb.as_str() {
        // What the laboratory starts of itself.
        "contend" => lab::work::contend(serde_json::from_str(rest.first().ok_or(USAGE)?)?).await,
        "packages" => {
            println!(
                "{}",
                packages::missing(&program(rest)?.ways, rest.iter().any(|option| option == "--look")).join(" ")
            );
            Ok(())
        }
        "play" => evening(program(rest)?).await,
        "picture" => picture(rest),
        _ => Err(USAGE.into()),
    }
}

async fn evening(mut program: Program) -> Outcome {
    if program.ways.iter().any(|way| way.java) {
        program.java = java::driver().map_err(|error| error.to_string());
    }
    let (folder, machine, began) = (Path::new(RESULTS), Machine::this()?, Instant::now());
    let results = play(&program).await;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    fs::create_dir_all(folder)?;
    fs::write(folder.join("faults.md"), table::markdown(&program.ways, &results))?;
    fs::write(folder.join("lab.json"), json::document(&program.ways, &results, &machine)?)?;
    fs::write(folder.join("lab.html"), page::page(&program.ways, &results, &machine))?;
    println!("\n{machine}");
    for (name, version) in &results.versions {
        println!("{name} {version}");
    }
    println!("\n{}", table::faults(&program.ways, &results));
    println!("{}", table::work(&program.ways, &results));
    for failure in &results.failures {
        println!("{failure}");
    }
    eprintln!("played in {minutes:.1} minutes; the page: {}/lab.html", fs::canonicalize(folder)?.display());
    let surprises = expect::surprises(&results);
    if surprises.is_empty() { Ok(()) } else { Err(format!("not as expected:\n{}", surprises.join("\n")).into()) }
}

/// Draws the table of faults of a document, into a file beside it.
fn picture(arguments: &[String]) -> Outcome {
    let [file] = arguments else { return Err(USAGE.into()) };
    Ok(fs::write(Path::new(file).with_extension("svg"), page::picture(&fs::read_to_string(file)?)?)?)
}

fn program(arguments: &[String]) -> Outcome<Program> {
    let java = Err("it was not asked for".into());
    let mut program = Program {
        ways: WAYS.iter().collect(),
        faults: Vec::new(),
        short: false,
        only_faults: false,
        series: 'r',
        java,
    };
    let mut rest = arguments.iter();
    while let Some(option) = rest.next() {
        let mut list = || rest.next().map(|list| list.split(',').collect::<Vec<_>>()).ok_or(USAGE);
        match option.as_str() {
            "--short" => program.short = true,
            "--only-faults" => program.only_faults = true,
            "--look" => (),
            "--series" => program.series = rest.next().and_then(|letter| letter.chars().next()).ok_or(USAGE)?,
            "--ways" => program.ways = list()?.into_iter().map(find).collect::<Outcome<_>>()?,
            "--faults" => {
                let list = list()?;
                program.faults = FAULTS.iter().map(|fault| fault.id).filter(|id| list.contains(id)).collect();
            }
            _ => return Err(USAGE.into()),
        }
    }
    if program.faults.is_empty() {
        let played = FAULTS.iter().filter(|fault| fault.in_short || !program.short);
        program.faults = played.map(|fault| fault.id).collect();
    }
    Ok(program)
}
