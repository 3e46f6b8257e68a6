//! `lab/run` calls this; see `lab/README.md`.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use lab::faults::FAULTS;
use lab::machine::Machine;
use lab::play::{Program, play, versions};
use lab::ways::WAYS;
use lab::{Outcome, expect, faults, java, json, packages, page, table, ways};

const USAGE: &str =
    "usage: lab play|packages|versions [--look] [--short] [--only-faults] [--series LETTER] [--ways ID,…] [--faults ID,…]
       lab picture FILE.md";
const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/lab");

/// The exit code of `sysexits.h` for a wrong command line.
const WRONG_USE: u8 = 64;

/// A command line that cannot be followed, and why.
#[derive(Debug)]
struct Misuse(String);

impl Misuse {
    fn of(why: impl ToString) -> Self {
        Self(why.to_string())
    }
}

impl Display for Misuse {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            if error.is::<Misuse>() { ExitCode::from(WRONG_USE) } else { ExitCode::FAILURE }
        }
    }
}

async fn run(arguments: &[String]) -> Outcome {
    let (verb, rest) = arguments.split_first().ok_or_else(|| Misuse::of(USAGE))?;
    match verb.as_str() {
        // What the laboratory starts of itself.
        "contend" => {
            let order = rest.first().ok_or_else(|| Misuse::of(USAGE))?;
            lab::work::contend(serde_json::from_str(order)?).await
        }
        "packages" => {
            let look = rest.iter().any(|option| option == "--look");
            println!("{}", packages::missing(&program(rest)?.ways, look).join(" "));
            Ok(())
        }
        "play" => evening(program(rest)?).await,
        "versions" => {
            for (name, version) in versions(&with_java(program(rest)?)).await {
                println!("{name} {version}");
            }
            Ok(())
        }
        "picture" => picture(rest),
        _ => Err(Misuse::of(USAGE).into()),
    }
}

/// Compiles Curator's driver, if a way needs it.
fn with_java(mut program: Program) -> Program {
    if program.ways.iter().any(|way| way.java) {
        program.java = java::driver().map_err(|error| error.to_string());
    }
    program
}

async fn evening(program: Program) -> Outcome {
    let program = with_java(program);
    let (folder, machine, began) = (Path::new(RESULTS), Machine::this()?, Instant::now());
    let results = play(&program).await;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    fs::create_dir_all(folder)?;
    let header = table::header(&machine.to_string(), &results);
    fs::write(folder.join("faults.md"), format!("{header}\n{}", table::markdown(&program.ways, &results)))?;
    fs::write(folder.join("lab.json"), json::document(&program.ways, &results, &machine)?)?;
    fs::write(folder.join("lab.html"), page::page(&program.ways, &results, &machine))?;
    println!("\n{header}\n{}", table::faults(&program.ways, &results));
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
    let [file] = arguments else { return Err(Misuse::of(USAGE).into()) };
    Ok(fs::write(Path::new(file).with_extension("svg"), page::picture(&fs::read_to_string(file)?)?)?)
}

fn program(arguments: &[String]) -> Result<Program, Misuse> {
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
        let mut value = || rest.next().ok_or_else(|| Misuse::of(USAGE));
        match option.as_str() {
            "--short" => program.short = true,
            "--only-faults" => program.only_faults = true,
            "--look" => (),
            "--series" => program.series = value()?.chars().next().ok_or_else(|| Misuse::of(USAGE))?,
            "--ways" => program.ways = listed(value()?, ways::find)?,
            "--faults" => program.faults = listed(value()?, faults::find)?.iter().map(|fault| fault.id).collect(),
            _ => return Err(Misuse::of(USAGE)),
        }
    }
    if program.faults.is_empty() {
        let played = FAULTS.iter().filter(|fault| fault.in_short || !program.short);
        program.faults = played.map(|fault| fault.id).collect();
    }
    Ok(program)
}

/// What these ids name, which are separated by commas.
fn listed<T>(ids: &str, find: fn(&str) -> Outcome<T>) -> Result<Vec<T>, Misuse> {
    ids.split(',').map(|id| find(id).map_err(Misuse::of)).collect()
}
