//! The program from outside.

#[path = "../common/mod.rs"]
mod common;

#[cfg(all(unix, feature = "server"))]
mod adapters;
mod bench;
mod chat;
#[cfg(feature = "constraints")]
mod constraints;
// Its commands are for sh.
#[cfg(unix)]
mod documents;
mod dry_run;
mod embed;
mod examples;
#[cfg(feature = "fit")]
mod fit;
mod help;
mod hostile_models;
#[cfg(feature = "download")]
mod hub;
mod inspect;
mod interrupt;
mod kl_divergence;
mod llama_flags;
mod output;
mod pictures;
mod quantize;
mod run;
mod search;
#[cfg(all(unix, feature = "server"))]
mod serve;
#[cfg(all(unix, feature = "server"))]
mod serve_embeddings;
#[cfg(all(unix, feature = "server"))]
mod serve_models;
mod shards;
mod speculation;
mod synth;
mod tasks;
mod threads;
mod windows;
mod written_files;
