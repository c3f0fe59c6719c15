//! Answers as vendors send them, and as nobody should.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Everything that is in an answer, read in pieces that end at these places.
fn read(answer: &[u8], cuts: &[usize]) -> Result<(u16, Vec<u8>, bool), String> {
    let mut pieces: VecDeque<&[u8]> = VecDeque::new();
    let (mut rest, mut at) = (answer, 0);
    for &cut in cuts {
        let (piece, after) = rest.split_at(cut.saturating_sub(at).min(rest.len()));
        (rest, at) = (after, at + piece.len());
        pieces.push_back(piece);
    }
    pieces.push_back(rest);
    let (mut buffer, mut searched) = (BytesMut::new(), 0);
    let mut head = loop {
        if let Some(head) = take_head(&mut buffer, &mut searched).map_err(|e| e.to_string())? {
            break head;
        }
        buffer.extend_from_slice(pieces.pop_front().ok_or("no head")?);
    };
    let mut body = Vec::new();
    loop {
        match head.framing.take(&mut buffer).map_err(|e| e.to_string())? {
            Part::Data(part) => body.extend_from_slice(&part),
            Part::End => break,
            Part::More => match pieces.pop_front() {
                Some(piece) => buffer.extend_from_slice(piece),
                None if head.framing.closed() => {}
                None => return Err("cut".to_owned()),
            },
        }
    }
    let is_all = buffer.is_empty() && pieces.iter().all(|piece| piece.is_empty());
    Ok((head.status.as_u16(), body, head.keeps_open && is_all))
}

const OK: &str = "HTTP/1.1 200 OK\r\n";

#[test]
fn answers_end_where_they_say() {
    let cases = [
        ("content-length: 3\r\n\r\nabc", "abc", true),
        ("Content-Length: 0\r\n\r\n", "", true),
        (
            "content-length: 3\r\nconnection: close\r\n\r\nabc",
            "abc",
            false,
        ),
        (
            "content-length: 3\r\nconnection: x, Close\r\n\r\nabc",
            "abc",
            false,
        ),
        (
            "transfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "abc",
            true,
        ),
        (
            "transfer-encoding: chunked\r\n\r\n1;x=\"y\"\r\na\r\n0b \r\n01234567890\r\n000\r\nx: y\r\n\r\n",
            "a01234567890",
            true,
        ),
        ("\r\nuntil the end", "until the end", true),
        // What comes after an answer is not the answer's, and nobody waits for it.
        ("content-length: 1\r\n\r\nabc", "a", false),
    ];
    for (rest, body, keeps_open) in cases {
        let answer = format!("{OK}{rest}");
        let expected = Ok((200, body.as_bytes().to_vec(), keeps_open));
        assert_eq!(read(answer.as_bytes(), &[]), expected, "{rest:?}");
        let each: Vec<usize> = (0..answer.len()).collect();
        assert_eq!(
            read(answer.as_bytes(), &each).map(|read| read.1),
            Ok(body.into()),
            "{rest:?}"
        );
    }
    let other = [
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nx: y\r\n\r\nHTTP/1.1 201 X\r\ncontent-length: 1\r\n\r\na",
            201,
            "a",
        ),
        ("HTTP/1.1 204 None\r\n\r\n", 204, ""),
        ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na", 200, "a"),
        ("HTTP/1.1 503\r\ncontent-length: 1\r\n\r\na", 503, "a"),
    ];
    for (answer, status, body) in other {
        let read = read(answer.as_bytes(), &[]).map(|(status, body, _)| (status, body));
        assert_eq!(read, Ok((status, body.into())), "{answer:?}");
    }
}

/// B6: what could be read in two ways is not read at all.
#[test]
fn b6_ambiguous_answers_are_refused() {
    let long = format!("x: {}\r\n", "y".repeat(MAX_HEAD));
    let many = "x: y\r\n".repeat(MAX_HEADERS + 1);
    let extended = format!(
        "transfer-encoding: chunked\r\n\r\n1;{}",
        "x".repeat(MAX_CHUNK_LINE)
    );
    let trailers = format!(
        "transfer-encoding: chunked\r\n\r\n0\r\n{}",
        "x: y\r\n".repeat(MAX_TRAILERS / 4)
    );
    let cases = [
        "content-length: 1\r\ncontent-length: 1\r\n\r\na",
        "content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "content-length: +1\r\n\r\na",
        "content-length: 1, 1\r\n\r\na",
        "content-length: \r\n\r\na",
        "content-length: 99999999999999999999\r\n\r\na",
        "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: gzip\r\n\r\nabc",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n\r\nabc",
        "transfer-encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n11111111111111111\r\nabc",
        "content-length: 3\r\n\r\nab",
        "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "content-length: 1\n\na",
        "x : y\r\n\r\n",
        "x: a\r\n b\r\n\r\n",
        "x\r\n\r\n",
        "x: \0\r\n\r\n",
        long.as_str(),
        many.as_str(),
        extended.as_str(),
        trailers.as_str(),
    ];
    for rest in cases {
        let answer = format!("{OK}{rest}");
        assert!(read(answer.as_bytes(), &[]).is_err(), "{rest:.80}");
    }
    for answer in [
        "HTTP/1.1 101 X\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
    ] {
        assert!(read(answer.as_bytes(), &[]).is_err(), "{answer:?}");
    }
}

proptest! {
    /// However an answer arrives, it is the same answer, or none.
    #[test]
    fn any_bytes_read_the_same_however_they_are_cut(
        noise in prop::collection::vec(
            prop::sample::select(vec!["1", "a", "\r\n", "\n", "0", ";", " ", "f", "\r\n0\r\n\r\n", "\0"]), 0..24,
        ),
        chunked: bool,
        mut cuts in prop::collection::vec(0_usize..160, 0..6),
    ) {
        let coding = if chunked { "transfer-encoding: chunked" } else { "content-length: 7" };
        let answer = format!("{OK}{coding}\r\n\r\n{}", noise.concat());
        cuts.sort_unstable();
        prop_assert_eq!(read(answer.as_bytes(), &cuts), read(answer.as_bytes(), &[]));
    }

    #[test]
    fn a_chunked_body_is_what_was_sent(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        mut cuts in prop::collection::vec(0_usize..300, 0..8),
    ) {
        let mut answer = format!("{OK}transfer-encoding: chunked\r\n\r\n").into_bytes();
        for chunk in &chunks {
            answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            answer.extend_from_slice(chunk);
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"0\r\n\r\n");
        cuts.sort_unstable();
        prop_assert_eq!(read(&answer, &cuts), Ok((200, chunks.concat(), true)));
    }
}
