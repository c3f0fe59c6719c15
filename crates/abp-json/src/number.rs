//! Numbers as RFC 8785 writes them, and the ones it cannot carry.

/// How a number reaches the canonical form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Canonical {
    /// Its spelling is the canonical one.
    AsSpelled,
    /// It is this double, to be written as ECMAScript does.
    Double(f64),
}

/// Why a number has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An integer outside ±(2^53−1).
    UnsafeInteger,
    /// No finite double.
    NotFinite,
    /// Beyond ±(2^53−1), and not the decimal its double stands for.
    Imprecise,
}

/// The digits of 2^53−1.
const MAX_SAFE: &str = "9007199254740991";
/// The first double whose neighbours are not integers one apart on both sides: 2^53.
const FIRST_UNSAFE: f64 = 9_007_199_254_740_992.0;
/// As many digits as every double keeps apart, so that a decimal this short is its own shortest
/// spelling.
const EXACT_DIGITS: usize = 15;
/// As many digits as it can take to identify a double.
const ROUND_TRIP_DIGITS: usize = 17;

/// Decides how the number `text` is written; `integer` tells that it has no fraction and exponent.
pub(crate) fn canonical(text: &str, integer: bool) -> Result<Canonical, Fault> {
    if integer {
        let digits = text.strip_prefix('-').unwrap_or(text);
        return match digits.len() {
            1 if text == "-0" => Ok(Canonical::Double(0.0)),
            length if length < MAX_SAFE.len() => Ok(Canonical::AsSpelled),
            length if length == MAX_SAFE.len() && digits <= MAX_SAFE => Ok(Canonical::AsSpelled),
            _ => Err(Fault::UnsafeInteger),
        };
    }
    if is_short_decimal(text) {
        return Ok(Canonical::AsSpelled);
    }
    match text.parse::<f64>() {
        Ok(double) if double.abs() < FIRST_UNSAFE => Ok(Canonical::Double(double)),
        Ok(double) if double.is_finite() => {
            let mut buffer = ryu_js::Buffer::new();
            let exact = Decimal::read(text) == Decimal::read(buffer.format_finite(double));
            if exact {
                Ok(Canonical::Double(double))
            } else {
                Err(Fault::Imprecise)
            }
        }
        _ => Err(Fault::NotFinite),
    }
}

/// Tells whether reading a number as a double loses more than its last digits: more than the
/// seventeen digits that identify a double, or a number so small that nothing is left of it.
pub(crate) fn loses_digits(text: &str, double: f64) -> bool {
    let Some(decimal) = Decimal::read(text) else {
        return true;
    };
    let significant = decimal.digits.len();
    if significant <= ROUND_TRIP_DIGITS {
        return double == 0.0 && significant > 0;
    }
    Some(decimal) != Decimal::read(ryu_js::Buffer::new().format_finite(double))
}

/// Recognises decimals such as `0.25` that ECMAScript spells the same way.
fn is_short_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    // A zero before the point and the zeros after it are not significant, but down to 1e-6 they
    // are written out.
    digits.len() <= EXACT_DIGITS + 1
        && !digits.starts_with(b"0.00000")
        && digits
            .last()
            .is_some_and(|&last| matches!(last, b'1'..=b'9'))
        && digits
            .iter()
            .all(|&byte| byte == b'.' || byte.is_ascii_digit())
}

/// A positive decimal: `digits`, without zeros at either end, times a power of ten.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    digits: Vec<u8>,
    /// The power of ten of the first digit.
    magnitude: i64,
}

impl Decimal {
    /// Reads the size of a number; `None` when its exponent is beyond all reason.
    fn read(text: &str) -> Option<Self> {
        let text = text.strip_prefix('-').unwrap_or(text);
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i64 = exponent.parse().ok()?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = || whole.bytes().chain(fraction.bytes());
        let zeros = digits().take_while(|&digit| digit == b'0').count();
        let mut digits: Vec<u8> = digits().skip(zeros).collect();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let shift = whole.len() as i64 - 1 - zeros as i64;
        Some(Self {
            digits,
            magnitude: exponent.checked_add(shift)?,
        })
    }
}
