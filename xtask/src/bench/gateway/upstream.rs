//! The fake upstream, a process of its own: one thread that answers as the model's name says.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use abp_dialect::Dialect;
use anyhow::Result;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Collected};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::dialogue::{CHUNKS, PIECE, Pace, closing, held_text, opening, piece, whole};
use super::role;

/// Serves until the process ends.
pub(super) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let books = [Dialect::OpenAi, Dialect::Claude].map(|dialect| Arc::new(Book::of(dialect)));
    runtime.block_on(role::accept(move |stream| {
        let books = books.clone();
        async move {
            let service = service_fn(|request| answer(request, &books));
            // A peer that goes away ends its streams this way.
            drop(
                http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        }
    }))
}

/// The answers in one dialect, made once.
struct Book {
    dialect: Dialect,
    whole: Bytes,
    opening: Bytes,
    piece: Bytes,
    closing: Bytes,
}

impl Book {
    fn of(dialect: Dialect) -> Self {
        Self {
            dialect,
            whole: whole(dialect),
            opening: Bytes::from(opening(dialect) + &piece(dialect, PIECE)),
            piece: Bytes::from(piece(dialect, PIECE)),
            closing: Bytes::from(closing(dialect)),
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    [openai, claude]: &[Arc<Book>; 2],
) -> Result<Response<Answer>, Infallible> {
    let arrived = Instant::now();
    let book = match request.uri().path() {
        "/v1/messages" => claude,
        _ => openai,
    };
    let body = request.into_body().collect().await;
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let Some(pace) = Pace::of(&body) else {
        let mut refusal = Response::new(Answer::Whole(None));
        *refusal.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(refusal);
    };
    let rhythm = pace.rhythm();
    if let Some(rhythm) = rhythm {
        sleep(rhythm.first).await;
    }
    let (answer, kind) = if pace.streams() {
        let timing = match rhythm {
            None => Timing::Unpaced { yielded: true },
            Some(rhythm) => Timing::Paced {
                timer: Box::pin(sleep_until(Instant::now())),
                between: rhythm.between,
            },
        };
        let stream = Pieces {
            book: Arc::clone(book),
            arrived,
            sent: 0,
            timing,
        };
        (Answer::Stream(stream), "text/event-stream; charset=utf-8")
    } else {
        (Answer::Whole(Some(book.whole.clone())), "application/json")
    };
    let mut response = Response::new(answer);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

enum Answer {
    Whole(Option<Bytes>),
    Stream(Pieces),
}

/// An answer under way.
struct Pieces {
    book: Arc<Book>,
    arrived: Instant,
    sent: usize,
    timing: Timing,
}

enum Timing {
    /// Between two pieces the connection gets its turn to write: each piece travels alone.
    Unpaced { yielded: bool },
    Paced {
        timer: Pin<Box<Sleep>>,
        between: Duration,
    },
}

impl Pieces {
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.timing {
            Timing::Unpaced { yielded: true } => {
                self.timing = Timing::Unpaced { yielded: false };
                Poll::Ready(())
            }
            Timing::Unpaced { yielded } => {
                *yielded = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            // The end follows the last piece at once.
            Timing::Paced { .. } if self.sent >= CHUNKS => Poll::Ready(()),
            Timing::Paced { timer, between } => {
                ready!(timer.as_mut().poll(context));
                let next = timer.deadline() + *between;
                timer.as_mut().reset(next);
                Poll::Ready(())
            }
        }
    }

    fn next(&mut self) -> Option<Bytes> {
        let number = self.sent;
        self.sent += 1;
        let book = &self.book;
        match (number, &self.timing) {
            (CHUNKS, _) => Some(book.closing.clone()),
            (CHUNKS.., _) => None,
            (0, Timing::Unpaced { .. }) => Some(book.opening.clone()),
            (_, Timing::Unpaced { .. }) => Some(book.piece.clone()),
            (_, Timing::Paced { .. }) => {
                let text = piece(book.dialect, &held_text(self.arrived.elapsed()));
                let before = if number == 0 {
                    opening(book.dialect)
                } else {
                    String::new()
                };
                Some(Bytes::from(before + &text))
            }
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut *self {
            Self::Whole(bytes) => bytes.take(),
            Self::Stream(pieces) => {
                ready!(pieces.poll_turn(context));
                pieces.next()
            }
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream(pieces) => pieces.sent > CHUNKS,
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                http_body::SizeHint::with_exact(length as u64)
            }
            Self::Stream(_) => http_body::SizeHint::default(),
        }
    }
}
