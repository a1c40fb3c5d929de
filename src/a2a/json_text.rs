//! The grammar of a JSON text (RFC 8259), checked octet by octet without making
//! values of it: what a text contains is found, the rest is skipped, and all of
//! it is well-formed or none of it is taken.
//!
//! Takes and refuses exactly what `serde_json` does when it ignores a value.
//! Nests to any depth: it keeps a bit for each level instead of calling itself.

/// Walks over a JSON text. `None` from any step: it is none.
pub(super) struct Walk<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Walk<'a> {
    /// At the first octet that is no white space.
    pub(super) fn new(text: &'a str) -> Self {
        let mut walk = Self { text, at: 0 };
        walk.space();
        walk
    }

    /// The next octet.
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Whether nothing but white space is left.
    pub(super) fn is_over(&mut self) -> bool {
        self.space();
        self.at == self.text.len()
    }

    /// What `step` walks over.
    pub(super) fn token(&mut self, step: impl FnOnce(&mut Self) -> Option<()>) -> Option<&'a str> {
        let start = self.at;
        step(self)?;
        Some(&self.text[start..self.at])
    }

    /// Steps over white space.
    #[inline]
    fn space(&mut self) {
        if self.peek().is_none_or(|octet| octet > b' ') {
            return;
        }
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Steps over `octet` and the white space before and behind it, or stays.
    #[inline]
    fn take(&mut self, octet: u8) -> Option<()> {
        self.space();
        (self.peek()? == octet).then_some(())?;
        self.at += 1;
        self.space();
        Some(())
    }

    /// Walks over an object, and calls `on_member` at the value of each member with
    /// its name's token; that must walk over the value.
    pub(super) fn object(
        &mut self,
        mut on_member: impl FnMut(&'a str, &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.take(b'{')?;
        if self.peek()? != b'}' {
            loop {
                let name = self.name()?;
                on_member(name, self)?;
                if self.take(b',').is_none() {
                    break;
                }
            }
            (self.peek()? == b'}').then_some(())?;
        }
        self.at += 1;
        Some(())
    }

    /// A member's name and the colon behind it; gives the token.
    fn name(&mut self) -> Option<&'a str> {
        let start = self.at;
        self.string()?;
        let name = &self.text[start..self.at];
        self.take(b':')?;
        Some(name)
    }

    /// Walks over one value, and gives its token.
    pub(super) fn value(&mut self) -> Option<&'a str> {
        let start = self.at;
        let mut open = Levels::default();
        loop {
            match self.peek()? {
                b'{' => {
                    self.take(b'{')?;
                    if self.peek()? == b'}' {
                        self.at += 1;
                    } else {
                        open.push(true);
                        self.name()?;
                        continue;
                    }
                }
                b'[' => {
                    self.take(b'[')?;
                    if self.peek()? == b']' {
                        self.at += 1;
                    } else {
                        open.push(false);
                        continue;
                    }
                }
                b'"' => self.string()?,
                b't' => self.word("true")?,
                b'f' => self.word("false")?,
                b'n' => self.word("null")?,
                _ => self.number()?,
            }
            // A value has ended, and with it perhaps those around it.
            loop {
                let Some(in_object) = open.last() else {
                    let value = &self.text[start..self.at];
                    return Some(value);
                };
                self.space();
                match (self.peek()?, in_object) {
                    (b',', true) => {
                        self.take(b',')?;
                        self.name()?;
                        break;
                    }
                    (b',', false) => {
                        self.take(b',')?;
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        open.pop();
                    }
                    _ => return None,
                }
            }
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let rest = &self.text.as_bytes()[self.at..];
        rest.starts_with(word.as_bytes()).then_some(())?;
        self.at += word.len();
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|octet| octet.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        if self.peek()? == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    #[inline]
    fn string(&mut self) -> Option<()> {
        (self.peek()? == b'"').then_some(())?;
        self.at += 1;
        let octets = self.text.as_bytes();
        loop {
            self.at += find_special(&octets[self.at..])?;
            match octets[self.at] {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.escape()?,
                // A control character.
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let octets = self.text.as_bytes();
        let length = match octets.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
            b'u' => {
                let digits = octets.get(self.at + 2..self.at + 6)?;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(6)?
            }
            _ => return None,
        };
        self.at += length;
        Some(())
    }
}

/// Octets looked at together once a string has turned out to be long.
const STRIDE: usize = 32;
/// What is no longer than this is not.
const SHORT: usize = 16;

/// Where the first quote, backslash or control character is.
fn find_special(octets: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(chunk) = octets.get(at..at + 8) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        let found = special(u64::from_le_bytes(word));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
        // The compiler makes vector instructions of this.
        while at >= SHORT
            && let Some(stride) = octets.get(at..at + STRIDE)
        {
            let any = stride
                .iter()
                .fold(false, |any, &octet| any | is_special(octet));
            if any {
                break;
            }
            at += STRIDE;
        }
    }
    let rest = octets.get(at..)?;
    rest.iter()
        .position(|&octet| is_special(octet))
        .map(|n| at + n)
}

fn is_special(octet: u8) -> bool {
    matches!(octet, b'"' | b'\\' | ..0x20)
}

/// The high bit of each of eight octets that is special, right up to the lowest one.
fn special(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * EACH;
    let zero = |word: u64| word.wrapping_sub(EACH) & !word;
    let quote = zero(word ^ (EACH * u64::from(b'"')));
    let backslash = zero(word ^ (EACH * u64::from(b'\\')));
    let control = word.wrapping_sub(0x20 * EACH) & !word;
    (quote | backslash | control) & HIGH
}

/// Which of the levels that are open are objects, a bit each.
#[derive(Default)]
struct Levels {
    top: u64,
    depth: usize,
    below: Vec<u64>,
}

impl Levels {
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.below.push(self.top);
        }
        self.top = self.top << 1 | u64::from(object);
        self.depth += 1;
    }

    fn last(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.top & 1 == 1)
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.top >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.top = self.below.pop().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    fn takes(text: &str) -> bool {
        let mut walk = Walk::new(text);
        walk.value().is_some() && walk.is_over()
    }

    fn serde_takes(text: &str) -> bool {
        serde_json::from_str::<IgnoredAny>(text).is_ok()
    }

    #[test]
    fn the_grammar_of_rfc_8259() {
        for text in [
            "0",
            "-0",
            "1.5e+30",
            "10E-2",
            "\"\"",
            "\"\\u00e9\\\"\"",
            "[]",
            "{}",
            "[[],{}]",
            " [ 1 , 2 ] ",
            "{\"a\":{\"b\":[true,false,null]}}",
            "\"\u{7f}\u{2028}é\"",
        ] {
            assert!(takes(text) && serde_takes(text), "{text}");
        }
        for text in [
            "",
            "-",
            "01",
            "1.",
            ".5",
            "1e",
            "+1",
            "tru",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\u{1f}\"",
            "[1,]",
            "[,]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{1:1}",
            "[}",
            "{]",
            "[1",
            "1 1",
            "\u{feff}1",
            "\"\\u12",
        ] {
            assert!(!takes(text) && !serde_takes(text), "{text}");
        }
    }

    #[test]
    fn any_depth() {
        for depth in [1, 63, 64, 65, 127, 128, 129, 1000] {
            let open: String = (0..depth)
                .map(|n| if n % 3 == 0 { "{\"a\":" } else { "[" })
                .collect();
            let close: String = (0..depth)
                .rev()
                .map(|n| if n % 3 == 0 { "}" } else { "]" })
                .collect();
            assert!(takes(&format!("{open}1{close}")), "{depth}");
            assert!(!takes(&format!("{open}1{}", &close[1..])), "{depth}");
            assert!(!takes(&format!("{open}1{close}]")), "{depth}");
            let crossed = close.replacen(['}', ']'], "#", 1);
            let wrong = if close.starts_with('}') { "]" } else { "}" };
            assert!(
                !takes(&format!("{open}1{}", crossed.replacen('#', wrong, 1))),
                "{depth}"
            );
        }
    }

    #[test]
    fn the_end_of_a_string_is_found_wherever_it_is() {
        for length in 0..100 {
            for end in ["\"", "\\n\"", "\u{1}\""] {
                let text = format!("\"{}{end}", "x".repeat(length));
                assert_eq!(takes(&text), serde_takes(&text), "{text:?}");
                let text = format!("\"{}é{end}", "\u{80}".repeat(length));
                assert_eq!(takes(&text), serde_takes(&text), "{text:?}");
            }
        }
    }

    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("{".to_owned()),
            Just("}".to_owned()),
            Just("[".to_owned()),
            Just("]".to_owned()),
            Just(",".to_owned()),
            Just(":".to_owned()),
            Just(" ".to_owned()),
            Just("\n".to_owned()),
            Just("true".to_owned()),
            Just("null".to_owned()),
            Just("\"a\"".to_owned()),
            Just("\"a\":".to_owned()),
            Just("\"".to_owned()),
            Just("\\".to_owned()),
            "-?[0-9]{1,3}(\\.[0-9]{0,2})?([eE][+-]?[0-9]{0,2})?",
            "\"[ -~é]{0,40}\"",
        ]
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            ".{0,50}".prop_map(Into::into),
        ];
        leaf.prop_recursive(6, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::vec((".{0,9}", inner), 0..5)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Whatever stands there, `serde_json` says the same of it.
        #[test]
        fn takes_what_serde_json_takes(pieces in prop::collection::vec(piece(), 0..14)) {
            let text = pieces.concat();
            prop_assert_eq!(takes(&text), serde_takes(&text), "{}", text);
        }

        /// The same of texts that are nearly right.
        #[test]
        fn refuses_what_serde_json_refuses(
            value in value(),
            pretty: bool,
            at: prop::sample::Index,
            with in prop::option::of(prop::sample::select(b"{}[]\",:\\ 0e-.\n\x01".to_vec())),
        ) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            prop_assert!(takes(&text), "{}", text);
            let mut octets = text.into_bytes();
            let at = at.index(octets.len());
            match with {
                Some(octet) => octets[at] = octet,
                None => drop(octets.remove(at)),
            }
            if let Ok(text) = String::from_utf8(octets) {
                prop_assert_eq!(takes(&text), serde_takes(&text), "{}", text);
            }
        }
    }
}
