//! The routes against a real database.

mod admin;
mod auth;
mod batch;
mod cluster;
mod credentials;
mod cuts;
mod dispatch;
mod events;
mod faults;
mod feeds;
mod jobs;
mod kit;
mod observe;
mod openapi;
mod payments;
mod rate;
mod replay;
mod search;
mod server;
