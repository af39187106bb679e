//! The one place where an error becomes a reply.

use axum::{
    Json,
    body::Body,
    extract::Request,
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::wire::ApiError;

/// In OpenAI's shape. The error itself stays beside the reply, for the layers that the reply goes through.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.to_json())).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Whether a path is one of Anthropic's.
pub(super) fn is_messages(path: &str) -> bool {
    path.contains("messages")
}

/// Anthropic's clients look for errors in another shape.
pub(super) async fn shapes(request: Request, next: Next) -> Response {
    let to_messages = is_messages(request.uri().path());
    let mut response = next.run(request).await;
    let error = response.extensions().get::<ApiError>().filter(|_| to_messages);
    if let Some(body) = error.map(|error| error.to_messages_json().to_string()) {
        *response.body_mut() = Body::from(body);
    }
    response
}
