//! Small inputs for every way in which a scan by words can be fooled.

use super::*;

/// Compares the code view after squeezing the blanks it left.
#[track_caller]
fn check_code(text: &str, expected: &str) {
    let source = Source::scan("src/a.rs", text);
    let squeezed: Vec<_> = source.code.split_whitespace().collect();
    assert_eq!(squeezed.join(" "), expected, "{text}");
    assert_eq!(source.code.len(), text.len(), "{text}");
    assert_eq!(source.commented.len(), text.len(), "{text}");
}

#[test]
fn comments_and_literals_are_not_code() {
    check_code("a // std::fs\nb", "a b");
    check_code("a /* x /* y */ z */ b", "a b");
    check_code(r#"f("std::fs \" still", b)"#, "f( , b)");
    check_code("f(r#\"a \" b\"#, c)", "f( , c)");
    check_code("f(br\"a\\\", c)", "f( , c)");
    check_code("f('\"', '\\'', 'ß', b'x')", "f( , , , b )");
    check_code("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
    check_code("let r#type = bar\"x\";", "let r#type = bar ;");
    check_code("f(\"// no comment\", /* \"no string */ b)", "f( , b)");
    check_code("\"unterminated", "");
}

#[test]
fn the_commented_view_keeps_comments() {
    let source = Source::scan("src/a.rs", "f(\"x\"); // y\n");
    assert_eq!(source.commented, "f(   ); // y\n");
}

#[test]
fn test_code_is_found() {
    let check = |path: &str, text: &str, expected: &[usize]| {
        let source = Source::scan(path, text);
        let product: Vec<_> = source.product_lines().map(|(line, _)| line).collect();
        assert_eq!(product, expected, "{text}");
    };
    let module = "a();\n#[cfg(test)]\nmod tests {\n  b(\"}\");\n}\nc();\n";
    check("src/a.rs", module, &[1, 6]);
    check("src/a.rs", "#[cfg(test)]\nmod tests;\na();\n", &[3]);
    check(
        "src/a.rs",
        "#[cfg(test)]\nfn f(x: [u8; 3]) {\n}\na();",
        &[4],
    );
    check(
        "src/a.rs",
        "#[cfg(all(test, unix))]\nuse a::{b};\nc();",
        &[3],
    );
    check("src/a.rs", "#[cfg(not(test))]\nfn f() {}\n", &[1, 2]);
    check("src/a.rs", "#[cfg(unix)]\nfn test() {}\n", &[1, 2]);
    check("src/a/tests.rs", "a();\n", &[]);
    check("tests/it/main.rs", "a();\n", &[1]);
    check("crates/a/tests/it/main.rs", "a();\n", &[]);
}

#[test]
fn child_modules_are_those_without_a_body() {
    let check = |text: &str, expected: &[&str]| {
        assert_eq!(Source::scan("src/a.rs", text).child_modules(), expected);
    };
    check("mod a;\npub mod b;\npub(crate) mod c;", &["a", "b", "c"]);
    check(
        "mod a { mod b; fn f() {} mod c; }\nmod d;",
        &["a/b", "a/c", "d"],
    );
    check("// mod a;\nlet s = \"mod b;\";", &[]);
}

#[test]
fn a_word_stands_alone() {
    let check = |line: &str, word: &str, expected: bool| {
        assert_eq!(has_word(line, word), expected, "{word} in {line}");
    };
    check("use tokio::sync;", "tokio", true);
    check("use my_tokio::sync;", "tokio", false);
    check("tokio_stream", "tokio", false);
    check("std::fs::read", "std::fs", true);
    check("std::fsx", "std::fs", false);
    check("x.unimplemented!()", "unimplemented!", true);
}
