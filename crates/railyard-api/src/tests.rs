//! The routes against a real database.

mod admin;
mod auth;
mod credentials;
mod jobs;
mod kit;
mod observe;
mod server;
