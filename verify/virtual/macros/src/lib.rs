//! The attribute of tests.

use proc_macro::{Delimiter, TokenStream, TokenTree};

/// In place of `tokio::test`: plays the scene in a world. Whatever runtime it asks for, it gets one thread.
#[proc_macro_attribute]
pub fn test(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let body = match tokens.pop() {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
        _ => panic!("a test has a body"),
    };
    let is_async = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "async");
    let at = tokens.iter().rposition(is_async).expect("a test is async");
    tokens.remove(at);
    let name = match &tokens[at + 1] {
        TokenTree::Ident(name) => name.to_string(),
        _ => panic!("a test has a name"),
    };
    let head: TokenStream = tokens.into_iter().collect();
    let call = format!(
        "{{ ::tokio::runner::run(concat!(module_path!(), \"::\", \"{name}\"), crate::support::warm_up, || async move {{ BODY }}) }}"
    );
    let call: TokenStream = call.parse().expect("tokens");
    let mut all: TokenStream = "#[::core::prelude::v1::test]".parse().expect("tokens");
    all.extend(head);
    all.extend(replaced(call, &TokenTree::Group(body)));
    all
}

fn replaced(tokens: TokenStream, body: &TokenTree) -> TokenStream {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Ident(word) if word.to_string() == "BODY" => body.clone(),
            TokenTree::Group(group) => {
                let mut inner = proc_macro::Group::new(group.delimiter(), replaced(group.stream(), body));
                inner.set_span(group.span());
                TokenTree::Group(inner)
            }
            token => token,
        })
        .collect()
}
