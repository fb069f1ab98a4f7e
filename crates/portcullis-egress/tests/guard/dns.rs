//! A name server of the test's own, spoken to over UDP, whose answers change.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::BoxFuture;
use hickory_proto::{
    op::{Message, MessageType, OpCode, Query, ResponseCode},
    rr::{DNSClass, Name, RData, Record, RecordType},
};
use portcullis_egress::Resolver;
use tokio::{io::AsyncWriteExt, net::UdpSocket};
use url::Url;

use crate::server::{Script, Server, Trap, builder, get, ok, short};

/// Answers each question for an IPv4 address with the next of these, and the last one for ever, to live no longer
/// than the answer.
struct NameServer {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl NameServer {
    async fn new(answers: &'static [&'static str]) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the name server of a test")]
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut bytes = vec![0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut bytes).await {
                let question = Message::from_vec(&bytes[..length]).unwrap();
                let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
                let query = question.queries[0].clone();
                let at = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
                match answers[at].parse() {
                    Ok(IpAddr::V4(ip)) => {
                        let record = Record::from_rdata(query.name().clone(), 0, RData::A(ip.into()));
                        answer.add_answer(record);
                    }
                    Ok(IpAddr::V6(ip)) => {
                        let record = Record::from_rdata(query.name().clone(), 0, RData::AAAA(ip.into()));
                        answer.add_answer(record);
                    }
                    Err(_) => answer.metadata.response_code = ResponseCode::ServFail,
                }
                answer.add_query(query);
                socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
            }
        });
        Self { address, asked }
    }

    fn resolver(&self) -> Stub {
        Stub(self.address)
    }
}

/// Asks the name server anew each time.
struct Stub(SocketAddr);

impl Resolver for Stub {
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let server = self.0;
        Box::pin(async move {
            let mut query = Query::query(Name::from_ascii(host).map_err(io::Error::other)?, RecordType::A);
            query.set_query_class(DNSClass::IN);
            let mut question = Message::query();
            question.add_query(query);
            #[expect(clippy::disallowed_methods, reason = "what asks the name server of a test")]
            let socket = UdpSocket::bind("127.0.0.1:0").await?;
            socket
                .send_to(&question.to_vec().map_err(io::Error::other)?, server)
                .await?;
            let mut bytes = vec![0; 1500];
            let (length, _) = socket.recv_from(&mut bytes).await?;
            let answer = Message::from_vec(&bytes[..length]).map_err(io::Error::other)?;
            if answer.metadata.response_code != ResponseCode::NoError {
                return Err(io::Error::other("the name server failed"));
            }
            let address = |record: &Record| record.data.ip_addr();
            Ok(answer.answers.iter().filter_map(address).collect())
        })
    }
}

#[tokio::test]
async fn a_name_server_that_rebinds_gains_nothing() {
    let script: Script = Arc::new(|_, mut stream| {
        Box::pin(async move {
            let _ = stream.write_all(&ok("good")).await;
        })
    });
    // 127.0.0.2 stands for the public server, 127.0.0.1 for what must not be reached.
    let server = Server::at("127.0.0.2:0".parse().unwrap(), script).await;
    let port = server.address.port();
    let trap = Trap::at(&format!("127.0.0.1:{port}")).await;
    let names = NameServer::new(&["127.0.0.2", "127.0.0.1", "::ffff:127.0.0.1", "fails", "127.0.0.2"]).await;
    let lines = [
        format!("http://rebind.test:{port}"),
        format!("http://127.0.0.2:{port}"),
    ];
    let client = builder(&lines)
        .resolver(names.resolver())
        .limits(short())
        .build()
        .unwrap();
    let url = Url::parse(&format!("http://rebind.test:{port}/")).unwrap();
    let mut outcomes = Vec::new();
    for _ in 0..5 {
        outcomes.push(match client.send(get(url.clone())).await {
            Ok(answer) => String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap(),
            Err(error) => {
                assert!(error.is_not_sent());
                error
                    .refusal()
                    .map_or_else(|| error.to_string(), |refusal| refusal.code().to_owned())
            }
        });
    }
    let failed = format!("the name of `http://rebind.test:{port}` cannot be resolved");
    assert_eq!(
        outcomes,
        [
            "good",
            "address_not_allowed",
            "address_not_allowed",
            &failed,
            "good"
        ]
    );
    assert_eq!(
        names.asked.load(Ordering::SeqCst),
        5,
        "one question for each connection"
    );
    assert_eq!(trap.connections().await, 0);
    assert_eq!(server.seen().len(), 2);
}
