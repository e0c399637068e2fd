//! The native HTTP API and its OpenAPI document.
