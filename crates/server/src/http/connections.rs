//! Sockets: where the server listens, and how connections begin and end.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{App, Config, router};
use crate::{Error, Result};

/// Without a handle for another socket a new one will not be had at once.
const AGAIN: Duration = Duration::from_millis(100);

/// Listens at all addresses, and says where.
pub async fn listen(config: &Config) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for host in &config.hosts {
        let at = |e: std::io::Error| {
            let what = match e.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "the port is in use by another program; choose one with `port`"
                }
                std::io::ErrorKind::AddrNotAvailable => "this machine has no such address",
                _ => return Error::io(format!("{host}:{}", config.port), e),
            };
            Error::Usage(format!("{host}:{}: {what}", config.port))
        };
        listeners.push(TcpListener::bind((host.trim_matches(['[', ']']), config.port)).await.map_err(at)?);
    }
    Ok(listeners)
}

/// Serves until `ends` changes, then finishes the answers that have begun, as long as that may take.
pub async fn serve(app: Arc<App>, listeners: Vec<TcpListener>, ends: watch::Receiver<bool>) -> Result<()> {
    let grace = app.config.grace;
    let mut all = tokio::task::JoinSet::new();
    for listener in listeners {
        all.spawn(connections(listener, router(app.clone()), app.config.timeout, ends.clone()));
    }
    let all = async { while all.join_next().await.is_some() {} };
    tokio::select! {
        () = all => (),
        () = async {
            ended(ends).await;
            app.models.stop_events();
            tokio::time::sleep(grace).await;
        } => (),
    }
    Ok(())
}

/// Takes connections until `ends` changes, then waits for those that are in the middle of an answer. A connection is closed
/// when the head of a request, the next one's too, does not come in time.
async fn connections(listener: TcpListener, router: Router, timeout: Duration, ends: watch::Receiver<bool>) {
    let mut builder = http1::Builder::new();
    // Names of headers mean the same in any case, but there are clients that look for the usual one.
    builder.title_case_headers(true).timer(TokioTimer::new()).header_read_timeout(timeout);
    let open = GracefulShutdown::new();
    let mut end = std::pin::pin!(ended(ends));
    loop {
        let socket = tokio::select! {
            socket = next(&listener) => socket,
            () = &mut end => break,
        };
        // A token is sent when it is there, not when a packet is full.
        let _ = socket.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection = open.watch(builder.serve_connection(TokioIo::new(socket), service));
        // Whoever breaks off a connection knows it.
        tokio::spawn(async move { drop(connection.await) });
    }
    drop(listener);
    open.shutdown().await;
}

async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return socket,
            // They have gone before they were taken.
            Err(error) if is_theirs(&error) => (),
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

fn is_theirs(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn ended(mut ends: watch::Receiver<bool>) {
    // Nobody left who could end it ends it as well.
    let _ = ends.wait_for(|end| *end).await;
}
