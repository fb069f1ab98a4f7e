use url::Url;

use crate::server::{Trap, builder, get, short};

/// Ways to write an address of this machine or its network. `PORT` becomes the trap's port.
const SPELLINGS: &[&str] = &[
    // Loopback, IPv4, in every notation that some parser takes.
    "http://127.0.0.1:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://2130706433.:PORT/",
    "http://0x7f000001:PORT/",
    "http://0X7F000001:PORT/",
    "http://0x7f.0.0.1:PORT/",
    "http://0x7f.1:PORT/",
    "http://0x7f.0x0.0x0.0x1:PORT/",
    "http://017700000001:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://0177.1:PORT/",
    "http://00177.0.0.01:PORT/",
    "http://127.0.0.01:PORT/",
    "http://127.0.0.0x1:PORT/",
    "http://127.0x0.0.1:PORT/",
    "http://127.2:PORT/",
    "http://127.255.255.254:PORT/",
    "http://127.%30.0.1:PORT/",
    "http://%31%32%37.0.0.1:PORT/",
    "http://１２７.０.０.１:PORT/",
    "http://127。0。0。1:PORT/",
    "http://①②⑦.⓪.⓪.①:PORT/",
    "http://127\t.0.0.1:PORT/",
    "http:127.0.0.1:PORT/",
    "http:/127.0.0.1:PORT/",
    "http:\\\\127.0.0.1:PORT\\",
    "http:///127.0.0.1:PORT/",
    "HTTP://127.0.0.1:PORT/",
    "http://127.0.0.1:0PORT/",
    "https://127.0.0.1:PORT/",
    // This host.
    "http://0.0.0.0:PORT/",
    "http://0:PORT/",
    "http://0x0:PORT/",
    "http://0.1:PORT/",
    "http://00000000:PORT/",
    // Loopback, IPv6, alone and with an IPv4 address inside.
    "http://[::1]:PORT/",
    "http://[0:0:0:0:0:0:0:1]:PORT/",
    "http://[0000:0000:0000:0000:0000:0000:0000:0001]:PORT/",
    "http://[::0.0.0.1]:PORT/",
    "http://[::]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[::FFFF:127.0.0.1]:PORT/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[::ffff:0:127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[64:ff9b::127.0.0.1]:PORT/",
    "http://[64:ff9b:1::127.0.0.1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://[2001:0:7f00:1::]:PORT/",
    // Names.
    "http://localhost:PORT/",
    "http://localhost.:PORT/",
    "http://LOCALHOST:PORT/",
    "http://LocalHost:PORT/",
    "http://ｌｏｃａｌｈｏｓｔ:PORT/",
    "http://l\u{00ad}ocalhost:PORT/",
    "http://loc%61lhost:PORT/",
    "http://app.localhost:PORT/",
    "http://localhost.localdomain:PORT/",
    "http://ip6-localhost:PORT/",
    "http://allowed.test@127.0.0.1:PORT/",
    "http://allowed.test:80@127.0.0.1:PORT/",
    "http://127.0.0.1:PORT/?allowed.test",
    "http://127.0.0.1:PORT/#@allowed.test",
    "http://127.0.0.1:PORT\\@allowed.test/",
    // Private networks, link-local, metadata, multicast, broadcast.
    "http://10.0.0.1:PORT/",
    "http://167772161:PORT/",
    "http://172.16.0.1:PORT/",
    "http://192.168.1.1:PORT/",
    "http://192.168.257:PORT/",
    "http://169.254.169.254:PORT/latest/meta-data/",
    "http://2852039166:PORT/",
    "http://0xa9fea9fe:PORT/",
    "http://[::ffff:169.254.169.254]:PORT/",
    "http://[fd00:ec2::254]:PORT/",
    "http://100.100.100.200:PORT/",
    "http://100.64.0.1:PORT/",
    "http://224.0.0.1:PORT/",
    "http://255.255.255.255:PORT/",
    "http://[fe80::1]:PORT/",
    "http://[fc00::1]:PORT/",
    "http://[ff02::1]:PORT/",
    "http://[fec0::1]:PORT/",
];

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
    let mut tried = 0;
    for spelling in SPELLINGS {
        let text = spelling.replace("PORT", &port.to_string());
        // What the standard's parser does not take cannot be asked at all.
        let Ok(url) = Url::parse(&text) else { continue };
        let error = client.send(get(url)).await.unwrap_err();
        assert!(error.refusal().is_some(), "{text}: {error:?}");
        assert!(error.is_not_sent());
        tried += 1;
    }
    assert!(tried >= 80, "only {tried} of {} could be parsed", SPELLINGS.len());
    assert_eq!(trap.connections().await, 0);
    assert_eq!(sixth.connections().await, 0);
}
