//! A2A service parameters of a request (ruling R13): collected as received,
//! validated and bounded, since they become part of an association.

use super::respond::Failure;
use crate::a2a::port::ServiceParameters;
use crate::limits;
use http::{HeaderMap, HeaderValue};

/// Collects them from the headers; `A2A-Version` in the query counts when no header states it.
pub(super) fn collect(
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<ServiceParameters, Failure> {
    let mut lines = Vec::new();
    for name in ServiceParameters::NAMES {
        for value in headers.get_all(name) {
            lines.push((name.to_owned(), validated(name, value)?));
        }
        if lines.len() > limits::PARAMETER_LINES_MAX {
            return Err(Failure::ParameterTooLarge { name });
        }
    }
    let version = ServiceParameters::NAMES[0];
    if let Some(query) = query
        && !headers.contains_key(version)
    {
        let stated = url::form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name.eq_ignore_ascii_case(version));
        if let Some((_, value)) = stated {
            let value = HeaderValue::from_str(&value)
                .map_err(|_| Failure::ParameterInvalid { name: version })?;
            lines.insert(0, (version.to_owned(), validated(version, &value)?));
            if lines.len() > limits::PARAMETER_LINES_MAX {
                return Err(Failure::ParameterTooLarge { name: version });
            }
        }
    }
    Ok(ServiceParameters { lines, hops: 0 })
}

fn validated(name: &'static str, value: &HeaderValue) -> Result<String, Failure> {
    if value.len() > limits::PARAMETER_VALUE_OCTETS_MAX {
        return Err(Failure::ParameterTooLarge { name });
    }
    match value.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Failure::ParameterInvalid { name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn lines(parameters: ServiceParameters) -> Vec<(String, String)> {
        parameters.lines
    }

    fn line(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn lines_as_received() {
        let headers = headers(&[
            ("a2a-extensions", b"one, two"),
            ("x-a2a-extensions", b"old"),
            ("a2a-version", b"1.0"),
            ("a2a-extensions", b"three"),
            ("authorization", b"secret"),
        ]);
        assert_eq!(
            lines(collect(&headers, Some("A2A-Version=0.3")).unwrap()),
            [
                line("a2a-version", "1.0"),
                line("a2a-extensions", "one, two"),
                line("a2a-extensions", "three"),
                line("x-a2a-extensions", "old"),
            ]
        );
    }

    #[test]
    fn the_query_states_a_version() {
        for (query, wanted) in [
            ("A2A-Version=1.0", "1.0"),
            ("x=1&a2a-version=99.0&y", "99.0"),
            ("A2A-Version=1%2E0", "1.0"),
            ("A2A-Version=", ""),
        ] {
            assert_eq!(
                lines(collect(&HeaderMap::new(), Some(query)).unwrap()),
                [line("a2a-version", wanted)],
                "{query}"
            );
        }
        assert!(
            collect(&HeaderMap::new(), Some("version=1"))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn bounded_and_valid() {
        let long = vec![b'x'; limits::PARAMETER_VALUE_OCTETS_MAX + 1];
        assert!(matches!(
            collect(&headers(&[("a2a-version", &long)]), None),
            Err(Failure::ParameterTooLarge { .. })
        ));
        let many = vec![("a2a-extensions", &b"x"[..]); limits::PARAMETER_LINES_MAX + 1];
        assert!(matches!(
            collect(&headers(&many), None),
            Err(Failure::ParameterTooLarge { .. })
        ));
        assert!(collect(&headers(&many[1..]), None).is_ok());
        assert!(matches!(
            collect(&headers(&many[1..]), Some("A2A-Version=1")),
            Err(Failure::ParameterTooLarge { .. })
        ));
        assert!(matches!(
            collect(&headers(&[("a2a-version", b"1.\xff")]), None),
            Err(Failure::ParameterInvalid { .. })
        ));
        for query in ["A2A-Version=%0d%0aX:%201", "A2A-Version=%C3%BC"] {
            assert!(matches!(
                collect(&HeaderMap::new(), Some(query)),
                Err(Failure::ParameterInvalid { .. })
            ));
        }
    }
}
