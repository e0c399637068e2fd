//! The native HTTP API and its OpenAPI document.
mod ascii;
mod body;
mod error;
mod extract;
mod metrics;
mod request;
mod slow;
mod sse;
