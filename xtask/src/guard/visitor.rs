//! The walk over one file's syntax tree.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::collect::{Bound, ImportedRoot, Known, Mentions, literal_text, meta_in};
use super::names::{self, Feature};
use super::tokens;
use crate::finding::Finding;

/// Attributes whose strings are words for people.
pub(super) const PROSE: &[&str] = &["doc", "expect", "allow", "warn", "deprecated", "must_use"];

/// Checks one file; strings only if `strings` is set.
pub(super) fn check(path: &str, file: &syn::File, strings: bool) -> Vec<Finding> {
    let mut known = Known::default();
    known.visit_file(file);
    let mut visitor = Visitor {
        path,
        strings,
        known: known.0,
        scopes: Vec::new(),
        in_capabilities: 0,
        findings: Vec::new(),
    };
    visitor.visit_file(file);
    let mut findings = visitor.findings;
    findings.sort();
    findings.dedup();
    findings
}

pub(super) struct Visitor<'a> {
    path: &'a str,
    /// Whether string literals are looked at.
    strings: bool,
    /// Names that stand for capabilities in the whole file: other names of the types, and fields of those types.
    known: HashSet<String>,
    /// Variables that hold capabilities, by function.
    scopes: Vec<HashSet<String>>,
    /// Above 0 inside an expression that makes or reads a capabilities object: there, a lone `"roots"` is a key.
    pub(super) in_capabilities: usize,
    findings: Vec<Finding>,
}

impl Visitor<'_> {
    pub(super) fn identifier(&mut self, name: &str, span: Span) {
        if let Some(feature) = names::of_identifier(name) {
            self.report(&format!("`{name}`"), feature, span);
        }
    }

    pub(super) fn text(&mut self, text: &str, span: Span) {
        if !self.strings {
            return;
        }
        for (what, feature) in names::in_text(text) {
            self.report(&format!("`{what}` in a string"), feature, span);
        }
        if self.in_capabilities > 0
            && let Some(feature) = names::of_capability(text)
        {
            self.report(&format!("`\"{text}\"` in a capabilities object"), feature, span);
        }
    }

    pub(super) fn literal(&mut self, literal: &syn::Lit) {
        if let Some(text) = literal_text(literal) {
            self.text(&text, literal.span());
        }
    }

    /// A field of something that is known to be a capabilities object.
    pub(super) fn capability(&mut self, field: &str, span: Span) {
        if let Some(feature) = names::of_capability(field) {
            self.report(&format!("field `{field}` of MCP capabilities"), feature, span);
        }
    }

    pub(super) fn is_capabilities(&self, name: &str) -> bool {
        names::means_capabilities(name)
            || self.known.contains(name)
            || self.scopes.iter().any(|scope| scope.contains(name))
    }

    /// Runs `walk` with lone strings read as keys of a capabilities object, if `inside` says so.
    pub(super) fn inside(&mut self, inside: bool, walk: impl FnOnce(&mut Self)) {
        self.in_capabilities += usize::from(inside);
        walk(self);
        self.in_capabilities -= usize::from(inside);
    }

    fn report(&mut self, what: &str, feature: Feature, span: Span) {
        self.found(
            format!("{what} is a use of MCP's {}", feature.name()),
            feature.help(),
            span,
        );
    }

    fn found(&mut self, what: String, help: String, span: Span) {
        let start = span.start();
        self.findings
            .push(Finding::file(self.path, what, help).at(start.line, start.column + 1));
    }

    /// Code that stands in no Rust file of ours is code that the guard does not see.
    fn hidden(&mut self, how: &str, span: Span) {
        let help = "put the code into a `.rs` file of its crate, as an ordinary module";
        self.found(
            format!("{how} takes in code that the guard cannot see"),
            help.to_owned(),
            span,
        );
    }

    fn function(&mut self, walk: impl FnOnce(&mut Self)) {
        self.scopes.push(HashSet::new());
        walk(self);
        self.scopes.pop();
    }

    /// The names that a pattern binds now hold capabilities.
    fn bind(&mut self, pattern: &syn::Pat) {
        let mut names = Bound::default();
        names.visit_pat(pattern);
        match self.scopes.last_mut() {
            Some(scope) => scope.extend(names.0),
            None => self.known.extend(names.0),
        }
    }

    fn mentions(&self, walk: impl FnOnce(&mut Mentions<'_>)) -> bool {
        let mut mentions = Mentions {
            is_one: &|name| self.is_capabilities(name),
            found: false,
        };
        walk(&mut mentions);
        mentions.found
    }

    fn path_is_capabilities(&self, path: &syn::Path) -> bool {
        path.segments
            .last()
            .is_some_and(|last| self.is_capabilities(&last.ident.to_string()))
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("path")
            && !is_rust_file(&pair.value)
        {
            self.hidden("`#[path]`", attribute.path().span());
        }
        if !PROSE.iter().any(|name| attribute.path().is_ident(name)) {
            visit::visit_attribute(self, attribute);
        }
    }

    fn visit_ident(&mut self, identifier: &'ast proc_macro2::Ident) {
        self.identifier(&identifier.to_string(), identifier.span());
    }

    fn visit_lit(&mut self, literal: &'ast syn::Lit) {
        self.literal(literal);
    }

    // Where the tree holds a string outside an expression (`extern "C"`, `#[path = "…"]`).
    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.text(&literal.value(), literal.span());
    }

    fn visit_token_stream(&mut self, stream: &'ast TokenStream) {
        tokens::walk(self, stream.clone());
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        let name = call
            .path
            .segments
            .last()
            .map(|last| last.ident.to_string())
            .unwrap_or_default();
        if name == "include" {
            self.hidden("`include!`", call.path.span());
        }
        if name == "concat" {
            self.text(&tokens::joined(call.tokens.clone()), call.tokens.span());
        }
        // Most macros take expressions or statements; read as such, they are checked like all other code. `json!` and
        // definitions of macros are neither, and are read token by token.
        let expressions = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        if let Ok(expressions) = expressions.parse2(call.tokens.clone()) {
            expressions
                .iter()
                .for_each(|expression| self.visit_macro_expression(expression));
        } else if let Ok(statements) = syn::Block::parse_within.parse2(call.tokens.clone()) {
            statements
                .iter()
                .for_each(|statement| self.visit_macro_statement(statement));
        } else {
            tokens::walk(self, call.tokens.clone());
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let about = names::means_capabilities(&item.sig.ident.to_string());
        self.function(|this| this.inside(about, |this| visit::visit_item_fn(this, item)));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let about = names::means_capabilities(&item.sig.ident.to_string());
        self.function(|this| this.inside(about, |this| visit::visit_impl_item_fn(this, item)));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(|this| visit::visit_trait_item_fn(this, item));
    }

    /// Parameters and `let` with a type.
    fn visit_pat_type(&mut self, pattern: &'ast syn::PatType) {
        if self.mentions(|mentions| mentions.visit_type(&pattern.ty)) {
            self.bind(&pattern.pat);
        }
        visit::visit_pat_type(self, pattern);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let initial = local.init.as_ref();
        if initial.is_some_and(|initial| self.mentions(|mentions| mentions.visit_expr(&initial.expr))) {
            self.bind(&local.pat);
        }
        let mut bound = Bound::default();
        bound.visit_pat(&local.pat);
        let about = bound.0.iter().any(|name| names::means_capabilities(name));
        self.inside(about, |this| visit::visit_local(this, local));
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if self.is_capabilities(&item.ident.to_string()) {
            for name in item.fields.iter().filter_map(|field| field.ident.as_ref()) {
                self.capability(&name.to_string(), name.span());
            }
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_expr_struct(&mut self, expression: &'ast syn::ExprStruct) {
        if self.path_is_capabilities(&expression.path) {
            for field in &expression.fields {
                self.member(&field.member);
            }
        }
        visit::visit_expr_struct(self, expression);
    }

    fn visit_pat_struct(&mut self, pattern: &'ast syn::PatStruct) {
        if self.path_is_capabilities(&pattern.path) {
            for field in &pattern.fields {
                self.member(&field.member);
            }
        }
        visit::visit_pat_struct(self, pattern);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        let about =
            matches!(&field.member, syn::Member::Named(name) if names::means_capabilities(&name.to_string()));
        self.inside(about, |this| visit::visit_field_value(this, field));
    }

    fn visit_expr_assign(&mut self, assignment: &'ast syn::ExprAssign) {
        let about = self.mentions(|mentions| mentions.visit_expr(&assignment.left));
        self.inside(about, |this| visit::visit_expr_assign(this, assignment));
    }

    fn visit_expr_field(&mut self, field: &'ast syn::ExprField) {
        if self.mentions(|mentions| mentions.visit_expr(&field.base)) {
            self.member(&field.member);
        }
        visit::visit_expr_field(self, field);
    }

    fn visit_expr_index(&mut self, index: &'ast syn::ExprIndex) {
        let about = self.mentions(|mentions| mentions.visit_expr(&index.expr));
        self.visit_expr(&index.expr);
        self.inside(about, |this| this.visit_expr(&index.index));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        // `meta.log_level()` asks whether a request wants log messages; of other things it is an ordinary name.
        if call.method == "log_level" && meta_in(&call.receiver) {
            self.report(
                "`log_level` of request metadata",
                Feature::Logging,
                call.method.span(),
            );
        }
        let about = self.mentions(|mentions| {
            mentions.visit_expr(&call.receiver);
            call.args
                .iter()
                .for_each(|argument| mentions.visit_expr(argument));
        });
        self.visit_expr(&call.receiver);
        self.visit_ident(&call.method);
        if let Some(turbofish) = &call.turbofish {
            self.visit_angle_bracketed_generic_arguments(turbofish);
        }
        self.inside(about, |this| {
            call.args.iter().for_each(|argument| this.visit_expr(argument))
        });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        // `Root` alone is too common a name to refuse: only rmcp's own.
        let mut segments = path.segments.iter();
        let of_rmcp = segments.next().is_some_and(|first| first.ident == "rmcp");
        if let Some(last) = segments
            .next_back()
            .filter(|last| of_rmcp && last.ident == "Root")
        {
            self.report("`Root` of rmcp", Feature::Roots, last.ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_use_path(&mut self, path: &'ast syn::UsePath) {
        if path.ident == "rmcp" {
            let mut imported = ImportedRoot::default();
            imported.visit_use_tree(&path.tree);
            imported
                .0
                .into_iter()
                .for_each(|span| self.report("`Root` of rmcp", Feature::Roots, span));
        }
        visit::visit_use_path(self, path);
    }
}

impl Visitor<'_> {
    fn member(&mut self, member: &syn::Member) {
        if let syn::Member::Named(name) = member {
            self.capability(&name.to_string(), name.span());
        }
    }

    // What is parsed out of a macro does not live as long as the file's own tree, so it is walked as if it had a
    // lifetime of its own.
    fn visit_macro_expression(&mut self, expression: &syn::Expr) {
        Visit::visit_expr(self, expression);
    }

    fn visit_macro_statement(&mut self, statement: &syn::Stmt) {
        Visit::visit_stmt(self, statement);
    }
}

/// Whether an attribute's value is the name of a Rust file inside the crate's own folders.
fn is_rust_file(value: &syn::Expr) -> bool {
    let syn::Expr::Lit(syn::ExprLit {
        lit: syn::Lit::Str(path),
        ..
    }) = value
    else {
        return false;
    };
    let path = path.value();
    path.ends_with(".rs") && !path.starts_with('/') && !path.contains("target/")
}
