//! Images of the size a client prefers.

use std::io::Cursor;

use abp_core::AgentEventKind;
use abp_stream::{Presenter, TextForm};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::{DynamicImage, ImageFormat, RgbImage};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::text::{block, client, presented};

/// A picture that does not compress to nothing.
fn picture(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let image = RgbImage::from_fn(width, height, |x, y| {
        image::Rgb([
            (x * 7 % 256) as u8,
            (y * 5 % 256) as u8,
            (x * y % 256) as u8,
        ])
    });
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::from(image)
        .write_to(&mut bytes, format)
        .unwrap();
    bytes.into_inner()
}

fn item(mime: &str, bytes: &[u8]) -> Value {
    let url = format!("data:{mime};base64,{}", STANDARD.encode(bytes));
    json!({"url": url, "mime_type": mime, "alt_text": "A chart"})
}

fn carousel(resolution: &str) -> Presenter {
    let client = client(&["MEDIA_CAROUSEL", "PHOTO"], true, Some(resolution));
    Presenter::new(Some(client), TextForm::Screen)
}

fn size(item: &Value) -> (u32, u32, &str) {
    let (head, encoded) = item["url"].as_str().unwrap().split_once(",").unwrap();
    let bytes = STANDARD.decode(encoded).unwrap();
    let image = image::load_from_memory(&bytes).unwrap();
    let mime = image::guess_format(&bytes).unwrap().to_mime_type();
    assert_eq!(head, format!("data:{mime};base64"));
    assert_eq!(item["mime_type"], mime);
    (image.width(), image.height(), mime)
}

#[test]
fn images_are_made_as_small_as_preferred() {
    use ImageFormat::{Gif, Jpeg, Png, WebP};
    let cases = [
        (Png, (600, 300), "low", (512, 256, "image/png")),
        (Jpeg, (50, 2100), "high", (49, 2048, "image/jpeg")),
        (Gif, (540, 27), "low", (512, 26, "image/gif")),
        (WebP, (1040, 104), "AUTO", (1024, 102, "image/webp")),
    ];
    for (format, (width, height), resolution, expected) in cases {
        let original = picture(width, height, format);
        let mime = format.to_mime_type();
        let mut presenter = carousel(resolution);
        let data = json!({"items": [item(mime, &original)]});
        let kinds = presented(&mut presenter, &[block("MEDIA_CAROUSEL", data)]);
        let [AgentEventKind::ContentBlock { data, .. }] = kinds.as_slice() else {
            panic!("{kinds:?}");
        };
        assert_eq!(size(&data["items"][0]), expected, "{mime}");
        let [record] = presenter.adaptations() else {
            panic!("one record");
        };
        assert_eq!(record.from, format!("{mime} of {width} × {height}"));
        let hash = sha256(&original);
        assert_eq!(record.original_sha256.as_deref(), Some(hash.as_str()));
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Also base64 beside the name of its type, anywhere in a block; what is small, linked or drawn
/// stays.
#[test]
fn what_fits_stays_and_nested_images_are_found() {
    let small = item("image/png", &picture(300, 200, ImageFormat::Png));
    let drawn = json!({"url": "data:image/svg+xml;base64,AAAA", "mime_type": "image/svg+xml"});
    let linked = json!({"url": "https://a.b/c.png", "mime_type": "image/png"});
    let fits = block("MEDIA_CAROUSEL", json!({"items": [small, drawn, linked]}));
    let mut presenter = carousel("low");
    let kinds = presented(&mut presenter, std::slice::from_ref(&fits));
    assert_eq!(kinds, [fits.kind]);
    assert_eq!(presenter.adaptations(), []);

    let large = STANDARD.encode(picture(520, 520, ImageFormat::Png));
    let data = json!({"shot": {"source": {"media_type": "image/png", "data": large}}});
    let kinds = presented(&mut presenter, &[block("PHOTO", data)]);
    let [AgentEventKind::ContentBlock { data, .. }] = kinds.as_slice() else {
        panic!("{kinds:?}");
    };
    let encoded = data["shot"]["source"]["data"].as_str().unwrap();
    let image = image::load_from_memory(&STANDARD.decode(encoded).unwrap()).unwrap();
    assert_eq!((image.width(), image.height()), (512, 512));
}

/// What is not the image it is said to be, or could exhaust us, is described instead.
#[test]
fn images_that_cannot_stay_are_described() {
    let jpeg = picture(600, 60, ImageFormat::Jpeg);
    // Four thousand million pixels.
    let bomb = claiming(0xFFFF);
    let cut = picture(600, 60, ImageFormat::Png)[..2000].to_vec();
    let cases = [
        (
            item("image/png", &jpeg),
            "it is said to be image/png and is image/jpeg",
        ),
        (item("image/png", b"hello"), "it is no image"),
        (item("image/png", &bomb), "it cannot be read: "),
        (item("image/png", &cut), "it cannot be read: "),
        (
            json!({"url": "data:image/png;base64,*", "mime_type": "image/png", "alt_text": "A chart"}),
            "it is not base64",
        ),
    ];
    for (bad, reason) in cases {
        let good = json!({"url": "https://a.b/c.png", "mime_type": "image/png"});
        let mut presenter = carousel("low");
        let data = json!({"items": [bad, good]});
        let kinds = presented(&mut presenter, &[block("MEDIA_CAROUSEL", data)]);
        let [
            AgentEventKind::AssistantMessage { text },
            AgentEventKind::ContentBlock { data, .. },
        ] = kinds.as_slice()
        else {
            panic!("{kinds:?}");
        };
        assert!(
            text.starts_with("- Image: A chart (left out: it "),
            "{text}"
        );
        assert_eq!(data["items"], json!([good]));
        let [record] = presenter.adaptations() else {
            panic!("one record");
        };
        assert!(record.reason.starts_with(reason), "{}", record.reason);
    }
}

/// A block cannot make us work on one large image after the other.
#[test]
fn many_large_images_are_not_all_read() {
    let one = item("image/png", &claiming(6_000));
    let mut presenter = carousel("low");
    presented(
        &mut presenter,
        &[block("MEDIA_CAROUSEL", json!({ "items": vec![one; 8] }))],
    );
    let count = |reason: &str| -> u64 {
        let records = presenter.adaptations().iter();
        let records = records.filter(|record| record.reason.starts_with(reason));
        records.map(|record| record.count).sum()
    };
    let found = (count("it cannot be read"), count("it has too many"));
    // Three bytes for each pixel, of which a block has 512 MiB.
    assert_eq!(found, (4, 4));
}

/// A picture whose header claims that it has sides of that length.
fn claiming(side: u32) -> Vec<u8> {
    let mut bytes = picture(1, 1, ImageFormat::Png);
    bytes[16..20].copy_from_slice(&side.to_be_bytes());
    bytes[20..24].copy_from_slice(&side.to_be_bytes());
    let crc = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
