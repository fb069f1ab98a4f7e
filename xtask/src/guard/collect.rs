//! Small walks that collect: the names and places that the main walk asks for.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream};
use syn::visit::{self, Visit};

use super::{names, tokens};

/// The text of a string, byte string or C string.
pub(super) fn literal_text(literal: &syn::Lit) -> Option<String> {
    match literal {
        syn::Lit::Str(text) => Some(text.value()),
        syn::Lit::ByteStr(bytes) => Some(String::from_utf8_lossy(&bytes.value()).into_owned()),
        syn::Lit::CStr(text) => Some(text.value().to_string_lossy().into_owned()),
        _ => None,
    }
}

pub(super) fn meta_in(receiver: &syn::Expr) -> bool {
    let mut mentions = Mentions {
        is_one: &|name| name.to_ascii_lowercase().contains("meta"),
        found: false,
    };
    mentions.visit_expr(receiver);
    mentions.found
}

/// Looks for one kind of name in a piece of the tree, strings and macros included.
pub(super) struct Mentions<'a> {
    pub(super) is_one: &'a dyn Fn(&str) -> bool,
    pub(super) found: bool,
}

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_ident(&mut self, identifier: &'ast proc_macro2::Ident) {
        self.found |= (self.is_one)(&identifier.to_string());
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.found |= (self.is_one)(&literal.value());
    }

    fn visit_token_stream(&mut self, stream: &'ast TokenStream) {
        self.found |= tokens::mention(stream.clone(), self.is_one);
    }
}

/// Other names of the capabilities types, and fields that hold one, found before the walk since they may be used
/// above the place where they are declared.
#[derive(Default)]
pub(super) struct Known(pub(super) HashSet<String>);

impl<'ast> Visit<'ast> for Known {
    fn visit_use_rename(&mut self, rename: &'ast syn::UseRename) {
        if names::means_capabilities(&rename.ident.to_string()) {
            self.0.insert(rename.rename.to_string());
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        if type_means_capabilities(&item.ty) {
            self.0.insert(item.ident.to_string());
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = field
            .ident
            .as_ref()
            .filter(|_| type_means_capabilities(&field.ty))
        {
            self.0.insert(name.to_string());
        }
    }
}

fn type_means_capabilities(kind: &syn::Type) -> bool {
    let mut mentions = Mentions {
        is_one: &names::means_capabilities,
        found: false,
    };
    mentions.visit_type(kind);
    mentions.found
}

/// The names that a pattern binds.
#[derive(Default)]
pub(super) struct Bound(pub(super) HashSet<String>);

impl<'ast> Visit<'ast> for Bound {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.0.insert(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }
}

/// Where a `use` of rmcp takes its `Root`.
#[derive(Default)]
pub(super) struct ImportedRoot(pub(super) Vec<Span>);

impl<'ast> Visit<'ast> for ImportedRoot {
    fn visit_use_name(&mut self, name: &'ast syn::UseName) {
        self.0.extend((name.ident == "Root").then(|| name.ident.span()));
    }

    fn visit_use_rename(&mut self, rename: &'ast syn::UseRename) {
        self.0
            .extend((rename.ident == "Root").then(|| rename.ident.span()));
    }
}
