//! Notes about sidecars: one that was forged, edited, replayed or put in place of another ends
//! nothing and is reported.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use abp_host::records::{self, NoteError, NotesError, SweepReport};
use abp_host::{Containment, SIDECAR_ID, SidecarClient};
use abp_sandbox::procfs::{ProcessId, boot_id};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use uuid::Uuid;

use crate::containment::start_host;
use crate::support::{only_note, shell};

/// A process of this test's own, which no note may end.
struct Stranger(Child);

impl Stranger {
    fn start(mark: &str) -> Self {
        let mut command = Command::new("sleep");
        Self(command.arg("60").env(SIDECAR_ID, mark).spawn().unwrap())
    }

    fn id(&self) -> ProcessId {
        ProcessId::of(i32::try_from(self.0.id()).unwrap()).unwrap()
    }

    fn lives(&mut self) -> bool {
        std::thread::sleep(Duration::from_millis(100));
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A state directory with a key and no notes.
struct Notes {
    state: tempfile::TempDir,
}

impl Notes {
    async fn new() -> Self {
        let notes = Self {
            state: tempfile::tempdir().unwrap(),
        };
        notes.of_a_sidecar().await;
        notes
    }

    fn directory(&self) -> PathBuf {
        records::directory(self.state.path())
    }

    fn key(&self) -> Vec<u8> {
        fs::read(self.state.path().join("sidecars.key")).unwrap()
    }

    fn put(&self, name: &str, content: &str) {
        fs::write(self.directory().join(name), content).unwrap();
    }

    fn sweep(&self) -> SweepReport {
        records::sweep(&self.directory()).unwrap()
    }

    /// The note of a sidecar that has ended by now.
    async fn of_a_sidecar(&self) -> (String, String) {
        let (mut spec, _) = shell("hello; cat > /dev/null");
        spec.records = Some(self.directory());
        let client = SidecarClient::spawn(spec).await.unwrap();
        let note = only_note(self.state.path());
        client.close().await.unwrap();
        note
    }

    /// The only note is not believed, and out of the way afterwards.
    fn refuses(&self, case: &str) -> NoteError {
        let mut report = self.sweep();
        assert_eq!(report.ended, Vec::<String>::new(), "{case}");
        assert_eq!(report.refused.len(), 1, "{case}: {report:?}");
        let refused = report.refused.remove(0);
        assert!(refused.path.starts_with(self.directory()), "{case}");
        let again = self.sweep();
        assert!(again.refused.is_empty(), "{case} is reported twice");
        let aside = self.directory().join("refused");
        assert_eq!(fs::read_dir(&aside).unwrap().count(), 1, "{case}");
        fs::remove_dir_all(aside).unwrap();
        refused.error
    }
}

/// A note as an attacker would write it: the host is long gone, the launcher is the stranger.
fn forged(id: &str, stranger: ProcessId) -> Value {
    json!({
        "id": id, "boot_id": boot_id().unwrap(),
        "host": {"pid": stranger.pid, "start_time": 1},
        "launcher": {"pid": stranger.pid, "start_time": stranger.start_time},
    })
}

/// The note with the code that a key gives.
fn sealed(note: &Value, key: &[u8]) -> String {
    let process = |name: &str| format!("{} {}", note[name]["pid"], note[name]["start_time"]);
    let text = |name: &str| note[name].as_str().unwrap().to_owned();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    let parts = ["id", "boot_id"].map(text).into_iter();
    let parts = parts.chain(["host", "launcher"].map(process));
    for part in ["abp sidecar note 1".to_owned()].into_iter().chain(parts) {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    let mac = mac.finalize().into_bytes();
    let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "note": note, "mac": mac }).to_string()
}

#[tokio::test]
async fn c14_a_forged_note_ends_nothing_and_is_reported() {
    let notes = Notes::new().await;
    let id = Uuid::new_v4().to_string();
    // It even carries the mark: only the code tells that the note is not ours.
    let mut stranger = Stranger::start(&id);
    let note = forged(&id, stranger.id());
    let name = format!("{id}.json");
    let without_code = note.to_string();
    let empty_code = json!({ "note": note, "mac": "" }).to_string();
    let odd_code = json!({ "note": note, "mac": "\u{e9}\u{e9}" }).to_string();
    let other_key = sealed(&note, &[7; 64]);
    for (case, content) in [
        ("without a code", without_code),
        ("an empty code", empty_code),
        ("a code that is no number", odd_code),
        ("the code of another key", other_key),
    ] {
        notes.put(&name, &content);
        let error = notes.refuses(case);
        let expected = match case {
            "without a code" => matches!(error, NoteError::Malformed(_)),
            _ => matches!(error, NoteError::NotAuthentic),
        };
        assert!(expected, "{case}: {error}");
    }
    assert!(stranger.lives(), "a stranger was killed");
}

#[tokio::test]
async fn c14_a_note_with_the_key_ends_no_process_without_the_mark() {
    let notes = Notes::new().await;
    let id = Uuid::new_v4().to_string();
    let mut stranger = Stranger::start("another mark");
    let real = stranger.id();
    let sealed = |note: &Value| sealed(note, &notes.key());
    notes.put(&format!("{id}.json"), &sealed(&forged(&id, real)));
    let error = notes.refuses("unmarked");
    let NoteError::Unmarked { pid, id: of } = &error else {
        panic!("{error}");
    };
    assert_eq!((*pid, of), (real.pid, &id));
    // Another process has had the id since; after a restart, nothing is what it was.
    let mut earlier = forged(&id, real);
    earlier["launcher"]["start_time"] = json!(real.start_time - 1);
    let mut rebooted = forged(&id, real);
    rebooted["boot_id"] = json!("another-boot");
    for note in [earlier, rebooted] {
        notes.put(&format!("{id}.json"), &sealed(&note));
        assert_eq!(notes.sweep().ended, std::slice::from_ref(&id));
    }
    let odd = sealed(&forged("", real));
    notes.put(".json", &odd);
    let error = notes.refuses("an id that marks everything");
    assert!(matches!(error, NoteError::Malformed(_)), "{error}");
    assert!(stranger.lives(), "a stranger was killed");
}

#[tokio::test]
async fn c14_an_edited_note_is_found_out() {
    let notes = Notes::new().await;
    let mut stranger = Stranger::start("");
    let (name, original) = notes.of_a_sidecar().await;
    let original: Value = serde_json::from_str(&original).unwrap();
    let other = Uuid::new_v4().to_string();
    for (pointer, value) in [
        ("/note/launcher/pid", json!(stranger.id().pid)),
        ("/note/launcher/start_time", json!(1)),
        ("/note/host/pid", json!(1)),
        ("/note/host/start_time", json!(1)),
        ("/note/boot_id", json!("another-boot")),
        ("/note/id", json!(other)),
    ] {
        let mut edited = original.clone();
        *edited.pointer_mut(pointer).unwrap() = value;
        notes.put(&name, &edited.to_string());
        let error = notes.refuses(pointer);
        assert!(
            matches!(error, NoteError::NotAuthentic),
            "{pointer}: {error}"
        );
    }
    let mut longer = original;
    longer["note"]["command"] = json!("rm");
    notes.put(&name, &longer.to_string());
    let error = notes.refuses("one member more");
    assert!(matches!(error, NoteError::Malformed(_)), "{error}");
    assert!(stranger.lives(), "a stranger was killed");
}

#[tokio::test]
async fn c14_a_replayed_note_ends_nothing() {
    let (mut host, mark, state) = start_host(Containment::PidNamespace).await;
    let notes = Notes { state };
    let (name, note) = only_note(notes.state.path());
    // The host lives: its sidecar is its own business, for every other process too.
    let report = notes.sweep();
    assert!(
        report.ended.is_empty() && report.refused.is_empty(),
        "{report:?}"
    );
    assert!(
        mark.processes().len() > 1,
        "a sidecar of a living host was ended"
    );
    host.kill().unwrap();
    host.wait().unwrap();
    mark.gone_within(Duration::from_secs(5)).await;
    assert_eq!(notes.sweep().ended.len(), 1);
    // Everything it names is gone, so bringing it back does nothing.
    let mut stranger = Stranger::start("");
    notes.put(&name, &note);
    assert_eq!(notes.sweep().ended.len(), 1);
    assert_eq!(notes.sweep().ended.len(), 0);
    let other = format!("{}.json", Uuid::new_v4());
    notes.put(&other, &note);
    let error = notes.refuses("under another name");
    assert!(matches!(error, NoteError::WrongName { .. }), "{error}");
    // A note of this state directory is none of another one.
    let elsewhere = Notes::new().await;
    elsewhere.put(&name, &note);
    let error = elsewhere.refuses("in another state directory");
    assert!(matches!(error, NoteError::NotAuthentic), "{error}");
    assert!(stranger.lives(), "a stranger was killed");
}

#[tokio::test]
async fn c14_a_note_is_a_small_file_of_ours() {
    let notes = Notes::new().await;
    let (name, note) = notes.of_a_sidecar().await;
    let path = notes.directory().join(&name);
    let target = notes.state.path().join("elsewhere");
    fs::write(&target, &note).unwrap();

    symlink(&target, &path).unwrap();
    let error = notes.refuses("a link");
    assert!(matches!(error, NoteError::NotAFile), "{error}");
    assert_eq!(
        fs::read_to_string(&target).unwrap(),
        note,
        "the link was followed"
    );

    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let error = notes.refuses("a pipe");
    assert!(matches!(error, NoteError::NotAFile), "{error}");

    fs::create_dir(&path).unwrap();
    let error = notes.refuses("a directory");
    assert!(matches!(error, NoteError::NotAFile), "{error}");

    notes.put(&name, &(note.clone() + &" ".repeat(5000)));
    let error = notes.refuses("a long one");
    assert!(matches!(error, NoteError::TooLarge(_)), "{error}");

    if rustix::process::geteuid().is_root() {
        notes.put(&name, &note);
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        let error = notes.refuses("another user's");
        assert!(matches!(error, NoteError::ForeignOwner(65534)), "{error}");
    }
}

#[tokio::test]
async fn the_key_and_the_directory_are_ours_alone() {
    let notes = Notes::new().await;
    let key = notes.state.path().join("sidecars.key");
    let mode = |path: &PathBuf| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&key), mode(&notes.directory())), (0o600, 0o700));
    assert_ne!(
        notes.key(),
        Notes::new().await.key(),
        "the key is no secret"
    );

    notes.put("x.json", "{}");
    let good = notes.key();
    let spoil: [(&str, &dyn Fn()); 3] = [
        ("others may read", &|| {
            fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        }),
        ("64 bytes", &|| fs::write(&key, "short").unwrap()),
        ("link", &|| {
            let elsewhere = notes.state.path().join("other.key");
            fs::rename(&key, &elsewhere).unwrap();
            symlink(&elsewhere, &key).unwrap();
        }),
    ];
    for (problem, spoil) in spoil {
        spoil();
        let error = records::sweep(&notes.directory()).unwrap_err();
        assert!(matches!(error, NotesError::UnsafeKey { .. }), "{error}");
        assert!(error.to_string().contains(problem), "{error}");
        fs::remove_file(&key).unwrap();
        fs::write(&key, &good).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    }
    // Without a key nothing was written here, so nothing is believed.
    fs::remove_file(&key).unwrap();
    fs::remove_file(notes.directory().join("x.json")).unwrap();
    let id = Uuid::new_v4().to_string();
    let mut stranger = Stranger::start(&id);
    notes.put(
        &format!("{id}.json"),
        &sealed(&forged(&id, stranger.id()), &good),
    );
    let error = notes.refuses("no key");
    assert!(matches!(error, NoteError::NotAuthentic), "{error}");
    assert!(stranger.lives(), "a stranger was killed");
    assert_eq!(
        records::sweep(notes.state.path().join("none").as_path())
            .unwrap()
            .ended
            .len(),
        0
    );
}
