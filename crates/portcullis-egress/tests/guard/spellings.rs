use url::Url;

use crate::server::{Trap, builder, get, short};

/// Ways to write an address of this machine or its network: loopback in every notation that some parser takes, with an
/// IPv4 address inside an IPv6 one, names, private networks, link-local, metadata, multicast. `PORT` becomes the trap's
/// port. The benchmark of the client asks for the same.
const SPELLINGS: &str = include_str!("../../test_data/spellings.json");

#[tokio::test]
async fn no_spelling_of_an_inner_address_reaches_it() {
    let trap = Trap::at("127.0.0.1:0").await;
    let port = trap.address.port();
    let sixth = Trap::at(&format!("[::1]:{port}")).await;
    // Rules that allow much, and none of these: the scheme, the port and any name below two suffixes.
    let lines = [
        format!("http://allowed.test:{port}"),
        format!("http://*.test:{port}"),
        format!("http://*.0.0.1:{port}"),
        format!("https://*.example:{port}"),
        format!("http://8.8.8.8:{port}"),
    ];
    let client = builder(&lines).limits(short()).build().unwrap();
    let (mut tried, mut unreadable) = (0, Vec::new());
    let spellings: Vec<String> = serde_json::from_str(SPELLINGS).unwrap();
    for spelling in &spellings {
        let text = spelling.replace("PORT", &port.to_string());
        // What the standard's parser does not take cannot be asked at all.
        let Ok(url) = Url::parse(&text) else {
            unreadable.push(text);
            continue;
        };
        let error = client.send(get(url)).await.unwrap_err();
        assert!(error.refusal().is_some(), "{text}: {error:?}");
        assert!(error.is_not_sent());
        tried += 1;
    }
    assert!(tried >= 150, "only {tried} could be parsed, not: {unreadable:#?}");
    assert_eq!(trap.connections().await, 0);
    assert_eq!(sixth.connections().await, 0);
}
