//! RFC 6901.

use abp_json::{Limits, NodeId, Places, Tape, View, pointer};

#[test]
fn examples_of_rfc_6901_section_5() {
    let text = r#"{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4,
                   "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8}"#;
    let tape = Tape::parse_str(text, &Limits::default()).unwrap();
    for (pointer, expected) in [
        ("", text),
        ("/foo", r#"["bar", "baz"]"#),
        ("/foo/0", r#""bar""#),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
    ] {
        let found = tape
            .resolve(pointer)
            .unwrap_or_else(|| panic!("{pointer} resolves"));
        assert_eq!((found.raw(), found.pointer().as_str()), (expected, pointer));
        let segments = pointer::parse(pointer).unwrap();
        assert_eq!(pointer::build(&segments), pointer);
    }
    for wrong in [
        "foo", "/foo/2", "/foo/01", "/foo/-", "/foo/+1", "/m~n", "/m~2n", "/nothing", "//",
    ] {
        assert!(tape.resolve(wrong).is_none(), "{wrong}");
    }
    assert_eq!(pointer::unescape("~01").as_deref(), Some("~1"));
}

#[test]
fn every_value_is_found_by_its_pointer() {
    let text = r#"{"a":[[],[1,{"x/y":[null,{"":"z"}]}]],"\u0062":{"~":true}}"#;
    let tape = Tape::parse_str(text, &Limits::default()).unwrap();
    for view in tape.nodes() {
        let value = tape.resolve(&view.pointer()).map(View::id);
        let expected = if view.is_key() {
            view.id().index() + 1
        } else {
            view.id().index()
        };
        assert_eq!(value.map(NodeId::index), Some(expected), "{view:?}");
    }
}

/// Counting all places at once gives the same pointers as counting for each value.
#[test]
fn counted_places_make_the_same_pointers() {
    let numbers: Vec<_> = (0..120).map(|number| number.to_string()).collect();
    let text = format!(
        r#"{{"a/b":[[],[1,[2,{{"~":[3,"x"]}}]],{{}}],"many":[{}],"":{{"":[[[4]]]}}}}"#,
        numbers.join(",")
    );
    let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
    let places = Places::of(&tape);
    let mut seen = 0;
    for view in tape.nodes() {
        assert_eq!(places.pointer(view), view.pointer());
        seen += usize::from(!view.is_key());
        if !view.is_key() {
            let found = tape.resolve(&places.pointer(view)).map(View::id);
            assert_eq!(found, Some(view.id()));
        }
    }
    assert!(seen > 130, "{seen} values");
}
