//! Takes apart what `Debug` has written: the journal of a machine has its events as text.

/// A value as `Debug` writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A number, a name without fields, or the inside of a string.
    Word(&'a str),
    /// The name is empty for a tuple without one.
    Tuple(&'a str, Vec<Self>),
    Struct(&'a str, Vec<(&'a str, Self)>),
    List(Vec<Self>),
}

impl<'a> Value<'a> {
    /// The value that the whole text stands for.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut rest = Rest(text);
        rest.value().filter(|_| rest.0.is_empty())
    }

    /// The name of an enum's variant, or of a struct.
    pub(crate) fn name(&self) -> &'a str {
        match self {
            Self::Word(name) | Self::Tuple(name, _) | Self::Struct(name, _) => name,
            Self::List(_) => "",
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        let Self::Struct(_, fields) = self else { return None };
        fields.iter().find(|(one, _)| *one == name).map(|(_, value)| value)
    }

    pub(crate) fn item(&self, at: usize) -> Option<&Self> {
        match self {
            Self::Tuple(_, items) | Self::List(items) => items.get(at),
            _ => None,
        }
    }

    pub(crate) fn items(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }
}

struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn take(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn until(&mut self, is_end: impl Fn(char) -> bool) -> &'a str {
        let (word, rest) = self.0.split_at(self.0.find(is_end).unwrap_or(self.0.len()));
        self.0 = rest;
        word
    }

    fn value(&mut self) -> Option<Value<'a>> {
        if self.take("\"") {
            let text = self.until(|c| c == '"');
            return self.take("\"").then_some(Value::Word(text));
        }
        if self.take("[") {
            return self.all("]", Self::value).map(Value::List);
        }
        let word = self.until(|c| ",()[]{} ".contains(c));
        if self.take("(") {
            return self.all(")", Self::value).map(|items| Value::Tuple(word, items));
        }
        if self.take(" { ") {
            return self.all(" }", Self::field).map(|fields| Value::Struct(word, fields));
        }
        (!word.is_empty()).then_some(Value::Word(word))
    }

    fn field(&mut self) -> Option<(&'a str, Value<'a>)> {
        let name = self.until(|c| c == ':');
        self.take(": ").then(|| self.value()).flatten().map(|value| (name, value))
    }

    /// Everything up to the end of a list, without the separators.
    fn all<T>(&mut self, end: &str, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = Vec::new();
        while !self.take(end) {
            if !all.is_empty() && !self.take(", ") {
                return None;
            }
            all.push(one(self)?);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::Value;

    #[derive(Debug)]
    #[expect(dead_code, reason = "only its text is read")]
    enum Shape {
        Empty,
        Round(u8, Option<i8>),
        Cornered { sides: Vec<(u8, &'static str)>, is_closed: bool },
    }

    #[test]
    fn text_is_taken_apart() {
        let text = format!("{:?}", [Shape::Empty, Shape::Round(1, Some(-2))]);
        let value = Value::parse(&text).expect("a list");
        assert_eq!(value.item(0), Some(&Value::Word("Empty")));
        let round = value.item(1).expect("the second");
        assert_eq!((round.name(), round.item(0)), ("Round", Some(&Value::Word("1"))));
        assert_eq!(round.item(1), Some(&Value::Tuple("Some", vec![Value::Word("-2")])));

        let text = format!("{:?}", Shape::Cornered { sides: vec![(3, "a, b")], is_closed: true });
        let value = Value::parse(&text).expect("a struct");
        let sides = value.field("sides").and_then(Value::items).expect("a list");
        assert_eq!(sides, [Value::Tuple("", vec![Value::Word("3"), Value::Word("a, b")])]);
        assert_eq!(value.field("is_closed"), Some(&Value::Word("true")));
        assert_eq!(value.field("is_open"), None);
    }

    #[test]
    fn text_that_is_no_value_is_refused() {
        for text in ["", "A(", "A { b: }", "[1 2]", "A)", "\"a"] {
            assert_eq!(Value::parse(text), None, "{text}");
        }
    }
}
