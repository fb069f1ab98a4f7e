//! One message of ours as JSON text, for either transport.

use rmcp::model::{
    CallToolRequest, ClientJsonRpcMessage, ClientRequest, InputResponses, JsonRpcMessage, RequestId,
    RequestMetaObject,
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::transport::RawArguments;

/// What most calls have around their arguments, in bytes: room for it at once spares growing.
const AROUND_BYTES: usize = 256;

/// The JSON text of a message, on one line: no newline is in it.
///
/// A call whose request carries [`RawArguments`] gets exactly that text as `params.arguments`, whatever arguments
/// the SDK's own type holds; only raw newlines, which JSON has between tokens alone, become spaces. All else is as
/// the SDK writes it.
///
/// # Errors
/// The raw arguments are not JSON, or the SDK cannot write the message.
pub(crate) fn encode_message(message: &ClientJsonRpcMessage) -> Result<Vec<u8>, serde_json::Error> {
    if let JsonRpcMessage::Request(request) = message
        && let ClientRequest::CallToolRequest(call) = &request.request
        && let Some(RawArguments(raw)) = call.extensions.get()
    {
        return encode_call(&request.id, call, raw);
    }
    serde_json::to_vec(message)
}

/// A call with its arguments as they are. Written by this and not by the SDK, whose type would have to parse them, and
/// to parse its own text again to have them put in: each call goes through here.
fn encode_call(id: &RequestId, call: &CallToolRequest, raw: &str) -> Result<Vec<u8>, serde_json::Error> {
    // JSON first: within a string a raw newline is none, and must not become a space that is.
    let given: &RawValue = serde_json::from_str(raw)?;
    let on_one_line: String;
    let arguments = if given.get().bytes().any(|byte| matches!(byte, b'\n' | b'\r')) {
        on_one_line = given.get().replace(['\n', '\r'], " ");
        serde_json::from_str(&on_one_line)?
    } else {
        given
    };
    let params = Params {
        meta: call.extensions.get().or(call.params.meta.as_ref()),
        name: &call.params.name,
        input_responses: call.params.input_responses.as_ref(),
        request_state: call.params.request_state.as_deref(),
        arguments,
    };
    let call = Call {
        jsonrpc: "2.0",
        id,
        method: "tools/call",
        params,
    };
    let mut bytes = Vec::with_capacity(arguments.get().len() + AROUND_BYTES);
    serde_json::to_writer(&mut bytes, &call)?;
    Ok(bytes)
}

/// JSON-RPC 2.0, section 4.
#[derive(Serialize)]
struct Call<'a> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    method: &'static str,
    params: Params<'a>,
}

/// MCP 2026-07-28, `CallToolRequestParams`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RequestMetaObject>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_responses: Option<&'a InputResponses>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_state: Option<&'a str>,
    arguments: &'a RawValue,
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequestParams, PingRequest};
    use serde::Deserialize;

    use super::*;

    fn call(tool: &str, raw: Option<&str>) -> ClientJsonRpcMessage {
        let mut request = CallToolRequest::new(CallToolRequestParams::new(tool.to_owned()));
        if let Some(raw) = raw {
            request.extensions.insert(RawArguments(raw.into()));
        }
        ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(7))
    }

    /// The text of `params.arguments` as it goes out.
    fn sent(raw: &str) -> Result<String, serde_json::Error> {
        #[derive(Deserialize)]
        struct Message {
            params: Params,
        }
        #[derive(Deserialize)]
        struct Params {
            arguments: Box<RawValue>,
        }
        let bytes = encode_message(&call("t", Some(raw)))?;
        assert!(!bytes.contains(&b'\n'));
        Ok(serde_json::from_slice::<Message>(&bytes)
            .unwrap()
            .params
            .arguments
            .get()
            .to_owned())
    }

    #[test]
    fn raw_arguments_go_out_word_for_word() {
        for raw in [
            "{}",
            r#"{"n":1.10,"big":123456789012345678901234567890,"exp":1E+2}"#,
            r#"{ "b" : 1 ,  "a" : 2, "b": 3 }"#,
            r#"{"text":"\u00e9 \/ \n","arguments":{"arguments":"params"}}"#,
            r#"{"private":"$serde_json::private::RawValue"}"#,
        ] {
            assert_eq!(sent(raw).unwrap(), raw);
        }
    }

    #[test]
    fn newlines_between_tokens_become_spaces() {
        assert_eq!(sent("{\r\n  \"a\":\n1}").unwrap(), "{    \"a\": 1}");
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for raw in [
            "{\"a\":\"x\ny\"}",
            "",
            "{",
            "{}{}",
            "{\"a\":\"\n\"",
            "NaN",
            "{\"a\":\"line\nbreak\"",
        ] {
            assert!(sent(raw).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn all_else_is_as_the_sdk_writes_it() {
        let plain = call("a \"tool\"", None);
        assert_eq!(
            encode_message(&plain).unwrap(),
            serde_json::to_vec(&plain).unwrap()
        );
        let ping = ClientJsonRpcMessage::request(
            ClientRequest::PingRequest(PingRequest::default()),
            RequestId::String("x".into()),
        );
        assert_eq!(encode_message(&ping).unwrap(), serde_json::to_vec(&ping).unwrap());
        // With raw arguments, what stands beside them stays.
        let mut with: serde_json::Value =
            serde_json::from_slice(&encode_message(&call("t", Some("{\"x\":1}"))).unwrap()).unwrap();
        assert_eq!(with["params"]["arguments"].take(), serde_json::json!({"x": 1}));
        with["params"].as_object_mut().unwrap().remove("arguments");
        let mut without = serde_json::to_value(call("t", None)).unwrap();
        without["params"].as_object_mut().unwrap().remove("arguments");
        assert_eq!(with, without);
    }

    /// What the SDK adds to a call, and what a later round has.
    #[test]
    fn what_stands_beside_the_arguments_is_as_the_sdk_writes_it() {
        let message = |raw: Option<&str>| {
            let mut params = CallToolRequestParams::new("a \"tool\"");
            params.request_state = Some("se\u{e9}al\n".to_owned());
            params.input_responses =
                serde_json::from_value(serde_json::json!({"x": {"action": "decline"}})).unwrap();
            let mut request = CallToolRequest::new(params);
            let meta: RequestMetaObject =
                serde_json::from_value(serde_json::json!({"progressToken": 7, "other": {"n": 1.5}})).unwrap();
            request.extensions.insert(meta);
            if let Some(raw) = raw {
                request.extensions.insert(RawArguments(raw.into()));
            }
            ClientJsonRpcMessage::request(
                ClientRequest::CallToolRequest(request),
                RequestId::String("\"7".into()),
            )
        };
        let mut with: serde_json::Value =
            serde_json::from_slice(&encode_message(&message(Some("{\"x\":1}"))).unwrap()).unwrap();
        let arguments = with["params"].as_object_mut().unwrap().remove("arguments");
        assert_eq!(arguments, Some(serde_json::json!({"x": 1})));
        assert_eq!(with, serde_json::to_value(message(None)).unwrap());
    }
}
