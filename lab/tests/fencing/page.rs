//! Owns [`Page`]: the statements of `docs/fencing.md`, which the tests run as they stand there.

const PAGE: &str = include_str!("../../../docs/fencing.md");

/// The block of one language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page(&'static str);

impl Page {
    /// What SQLite and PostgreSQL share.
    pub(crate) fn sql() -> Self {
        Self::block("sql")
    }

    pub(crate) fn mariadb() -> Self {
        Self::block("mariadb")
    }

    /// The first block below a heading, whole.
    pub(crate) fn below(heading: &str) -> &'static str {
        let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("a section");
        let (_, block) = section.split_once("\n```").expect("a block");
        let (_, block) = block.split_once('\n').expect("a block begins with its language");
        block.split_once("\n```").expect("a block has an end").0
    }

    fn block(language: &str) -> Self {
        let blocks: Vec<_> = PAGE.split(&format!("\n```{language}\n")).skip(1).collect();
        let [block] = blocks[..] else { panic!("{} blocks of {language} in docs/fencing.md", blocks.len()) };
        Self(block.split("\n```").next().expect("a split has a first part"))
    }

    /// The statement below the comment that begins with `name`, up to its semicolon.
    pub(crate) fn statement(self, name: &str) -> &'static str {
        let heads = [format!("-- {name}\n"), format!("-- {name}:")];
        let begins = heads.iter().find_map(|head| self.0.find(head.as_str()));
        let begins = begins.unwrap_or_else(|| panic!("docs/fencing.md has no statement {name}"));
        let (_, text) = self.0[begins..].split_once('\n').expect("a statement below its name");
        text.split_once(';').expect("a statement ends with a semicolon").0
    }
}
