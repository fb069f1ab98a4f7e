//! What a document says of the way to its HTTP servers: a proxy, and roots to trust. For all of them, and for one.

use crate::{
    Code,
    fields::Fields,
    source::Sink,
    value::{Node, Span, Spanned},
};

/// As it was written.
#[derive(Default, Clone)]
pub(crate) struct NetworkDraft {
    pub(crate) proxy: Option<ProxyDraft>,
    /// Paths of files.
    pub(crate) root_certificates: Vec<Spanned<String>>,
}

#[derive(Clone)]
pub(crate) enum ProxyDraft {
    /// Whatever the document says for all its servers, this one goes through none.
    Direct,
    Through(ThroughDraft),
}

#[derive(Clone)]
pub(crate) struct ThroughDraft {
    pub(crate) url: Spanned<String>,
    pub(crate) username: Option<Spanned<String>>,
    pub(crate) password: Option<Spanned<String>>,
}

impl NetworkDraft {
    /// Reads `proxy` and `rootCertificates`. Something that cannot be read is an error, so what has it is not used.
    pub(crate) fn read(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Self {
        Self {
            proxy: proxy(fields, sink),
            root_certificates: fields.texts("rootCertificates", sink),
        }
    }

    /// The texts that may hold references.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Spanned<String>> {
        let through = match &self.proxy {
            Some(ProxyDraft::Through(through)) => Some(through),
            _ => None,
        };
        let of_proxy = through.into_iter().flat_map(|through| {
            [
                Some(&through.url),
                through.username.as_ref(),
                through.password.as_ref(),
            ]
            .into_iter()
            .flatten()
        });
        of_proxy.chain(&self.root_certificates)
    }
}

/// A url, `none`, or an object with a login.
fn proxy(fields: &mut Fields<'_>, sink: &mut Sink<'_>) -> Option<ProxyDraft> {
    let member = fields.take("proxy")?;
    let span = member.value.span;
    match &member.value.node {
        Node::Text(text) if text == "none" => Some(ProxyDraft::Direct),
        Node::Text(_) => {
            let url = fields.text("proxy", sink)?;
            Some(ProxyDraft::Through(ThroughDraft {
                url,
                username: None,
                password: None,
            }))
        }
        Node::Object(_) => {
            let mut each = Fields::of(&member.value, "`proxy`", sink)?.under("proxy.");
            let missing = each.take("url").is_none();
            let url = each.text("url", sink);
            let username = each.text("username", sink);
            let password = each.text("password", sink);
            each.finish(sink);
            if missing {
                let help = "add `url:`, such as `http://proxy.example.com:3128`";
                sink.error(Code::MissingField, member.key.span, "`proxy` has no `url`", help);
            }
            if let (Some(password), None) = (&password, &username) {
                let message = "`proxy` has a `password` and no `username`";
                sink.error(Code::MissingField, password.span, message, "add `username:`");
            }
            Some(ProxyDraft::Through(ThroughDraft {
                url: url?,
                username,
                password,
            }))
        }
        _ => {
            wrong_type(span, member.value.kind(), sink);
            None
        }
    }
}

fn wrong_type(span: Span, kind: &str, sink: &mut Sink<'_>) {
    let message = format!("`proxy` is {kind}, and a url, `none` or an object is wanted");
    let help =
        "write `proxy: http://proxy.example.com:3128`, or `{url: …, username: …, password: …}`, or `none`";
    sink.error(Code::WrongType, span, message, help);
}
