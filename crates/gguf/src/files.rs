//! Files that are there whole or not at all, and files that may be read only so far.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use tempfile::{NamedTempFile, TempPath};

use crate::{Error, Result};

/// Links that are followed before they count as a circle, as in Linux.
const MOST_LINKS: usize = 40;

/// A kill leaves the old file or the new one. A link leads to the file that is replaced; a pipe or a device is written to.
pub fn write_whole(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let bytes = bytes.as_ref();
    if let Some(written) = write_stream(path, bytes) {
        return written.map_err(|e| Error::io(path, e));
    }
    let mut new = Replacement::of(path)?;
    new.file.write_all(bytes).map_err(|e| Error::io(path, e))?;
    new.put_in_place()
}

/// Writes to what is no regular file: the standard streams by any of their names, pipes, devices. `None` for the rest.
fn write_stream(path: &Path, bytes: &[u8]) -> Option<io::Result<()>> {
    let written = match path.to_str() {
        Some("/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Some("/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2") => io::stderr().lock().write_all(bytes),
        _ => {
            let is_file = |found: fs::Metadata| found.is_file() || found.is_dir();
            if !is_named_device(path) && fs::metadata(path).map_or(true, is_file) {
                return None;
            }
            OpenOptions::new().write(true).open(path).and_then(|mut stream| stream.write_all(bytes))
        }
    };
    Some(written)
}

/// Whether a path is a device by its name alone: Windows tells nothing else of one. In a folder not every Windows has it.
pub fn is_named_device(path: &Path) -> bool {
    cfg!(windows) && is_device(&path.to_string_lossy())
}

/// Names of Windows' devices.
pub fn is_device(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let number = |kind| name.strip_prefix(kind).is_some_and(|n| matches!(n.as_bytes(), [b'1'..=b'9']));
    matches!(&*name, "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$") || number("COM") || number("LPT")
}

/// A file under a name of its own, beside the one whose place it takes once it is complete. It is removed if it never does.
pub struct Replacement {
    file: NamedTempFile,
    target: PathBuf,
}

impl Replacement {
    pub fn of(path: &Path) -> Result<Self> {
        let target = of_any_length(&behind_links(path));
        let io = |e| Error::io(path, e);
        let old = match fs::metadata(&target) {
            Ok(old) if old.is_dir() => return Err(io(io::ErrorKind::IsADirectory.into())),
            Ok(old) if !old.is_file() => {
                return Err(Error::Input(format!("{}: is there and is not a regular file", path.display())));
            }
            Ok(old) => Some(old.permissions()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(io(e)),
        };
        // Who may not write to a file may not replace it either.
        if old.is_some() {
            OpenOptions::new().write(true).open(&target).map_err(io)?;
        }
        let Some(name) = target.file_name() else {
            return Err(io(io::ErrorKind::InvalidFilename.into()));
        };
        let folder = folder_of(&target);
        // The temporary file's own message would name a file that nobody knows.
        fs::metadata(folder).map_err(|e| Error::io(folder, e))?;
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        let mut builder = tempfile::Builder::new();
        // A name as long as the system allows leaves no room for more.
        if prefix.len() < 200 {
            builder.prefix(&prefix);
        }
        builder.suffix(".part");
        if let Some(permissions) = default_permissions() {
            builder.permissions(permissions);
        }
        let file = builder.tempfile_in(folder).map_err(io)?;
        if let Some(permissions) = old {
            file.as_file().set_permissions(permissions).map_err(io)?;
        }
        Ok(Replacement { file, target })
    }

    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    pub fn put_in_place(self) -> Result<()> {
        let Replacement { mut file, target } = self;
        let mut tries_left = TRIES;
        loop {
            tries_left -= 1;
            match file.persist(&target) {
                Ok(_) => return Ok(()),
                Err(e) if tries_left > 0 && e.error.kind() == io::ErrorKind::PermissionDenied => {
                    file = e.file
                }
                Err(e) => return Err(Error::io(&target, e.error)),
            }
            thread::sleep(BETWEEN_TRIES);
        }
    }
}

/// Windows replaces no file that another process has open, as while it reads or replaces it too, which takes a moment.
const TRIES: usize = if cfg!(windows) { 50 } else { 1 };
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// What a new file gets, less the user's mask; a temporary one would be for the user alone.
fn default_permissions() -> Option<Permissions> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        Some(Permissions::from_mode(0o666))
    }
    #[cfg(not(unix))]
    None
}

/// The file beside one that has its name and a suffix.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn of_any_length(path: &Path) -> PathBuf {
    #[cfg(windows)]
    return crate::windows::of_any_length(path);
    #[cfg(not(windows))]
    path.to_owned()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The file that links lead to, which need not be there yet.
fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(next) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(next);
    }
    path
}

/// For files that take long: `write` makes one of about `bytes`, which is put in its place when it is complete; what is
/// incomplete is removed. An existing file is replaced only with `force`.
pub fn write_large(
    path: &Path,
    force: bool,
    bytes: u64,
    write: impl FnOnce(File) -> Result<()>,
) -> Result<()> {
    let mut write = Some(write);
    write_set(&[path.to_owned()], force, bytes, |_, file| (write.take().expect("there is one file"))(file))
}

/// The same of several files in one folder, made one after the other: all are put in place, the first one last, or none is.
pub fn write_set(
    paths: &[PathBuf],
    force: bool,
    bytes: u64,
    mut write: impl FnMut(usize, File) -> Result<()>,
) -> Result<()> {
    for path in paths {
        let refuse = |what: &str| Err(Error::Usage(format!("{}: {what}", path.display())));
        match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => return refuse("is there and is not a regular file"),
            Ok(_) if !force => return refuse("exists; `force` overwrites it"),
            _ => {}
        }
    }
    check_space(paths.first().map_or(Path::new("."), |path| folder_of(path)), bytes)?;
    let new = paths.iter().map(|path| Replacement::of(path)).collect::<Result<Vec<_>>>()?;
    for (i, (path, new)) in paths.iter().zip(&new).enumerate() {
        let file = new.file().try_clone().map_err(|e| Error::io(path, e))?;
        write(i, file).map_err(|e| match e {
            Error::Io { source, .. } => Error::io(path, source),
            other => other,
        })?;
    }
    put_all_in_place(new)
}

/// Where one cannot be put in its place, those before it are taken away again, and what they replaced comes back. The
/// first is what opens a model in several files: while it is missing, nobody takes the others for a whole model.
fn put_all_in_place(new: Vec<Replacement>) -> Result<()> {
    let mut placed = Vec::new();
    let all = put_each_in_place(new, &mut placed);
    if all.is_err() {
        for (target, old) in placed {
            match old {
                Some(old) => _ = old.persist(target),
                None => _ = fs::remove_file(target),
            }
        }
    }
    all
}

/// The last one first. `placed`: those that are in their places, with what they replaced.
fn put_each_in_place(new: Vec<Replacement>, placed: &mut Vec<(PathBuf, Option<TempPath>)>) -> Result<()> {
    for (left, replacement) in (0..new.len()).zip(new).rev() {
        let target = replacement.target.clone();
        // Nothing that could fail comes after the last.
        let old = if left == 0 { None } else { set_aside(&target)? };
        if let Err(error) = replacement.put_in_place() {
            let _ = old.map(|old| old.persist(target));
            return Err(error);
        }
        placed.push((target, old));
    }
    Ok(())
}

/// An old file under a second name, which is removed when it is dropped; under that alone where a file has one name only.
fn set_aside(target: &Path) -> Result<Option<TempPath>> {
    if !fs::symlink_metadata(target).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let aside = tempfile::Builder::new().suffix(".old").make_in(folder_of(target), |aside| {
        fs::hard_link(target, aside).or_else(|_| fs::rename(target, aside))
    });
    aside.map(|aside| Some(aside.into_temp_path())).map_err(|e| Error::io(target, e))
}

fn check_space(folder: &Path, needed: u64) -> Result<()> {
    match free_bytes(folder) {
        Some(free) if free < needed => {
            let gb = |bytes: u64| bytes as f64 / 1e9;
            let (folder, needed, free) = (folder.display(), gb(needed), gb(free));
            Err(Error::Input(format!(
                "{folder}: {needed:.1} GB are needed and {free:.1} GB are free; choose another folder or model"
            )))
        }
        _ => Ok(()),
    }
}

/// What a user may still write there, if the system tells.
fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let stat = rustix::fs::statvfs(folder).ok()?;
        stat.f_bavail.checked_mul(stat.f_frsize)
    }
    #[cfg(windows)]
    crate::windows::free_bytes(folder)
}

/// All of a file that should be no larger than `most` bytes; more is an error that says so.
pub fn read_limited(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    read_stream_limited(&path.display().to_string(), file, most)
}

/// The same of a stream, which messages call `name`.
pub fn read_stream_limited(name: &str, stream: impl Read, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| Error::io(name, e))?;
    if bytes.len() as u64 > most {
        return Err(Error::Input(format!("{name}: larger than {} MiB, the most that is read", most >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod names {
    use super::is_device;

    #[test]
    fn devices_are_known_by_their_names() {
        for name in ["NUL", "nul", "con", "Com1", "LPT9", "CONOUT$"] {
            assert!(is_device(name), "{name}");
        }
        for name in ["nul.gguf", "COM", "COM0", "COM10", "console", ""] {
            assert!(!is_device(name), "{name}");
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn links_lead_to_what_is_replaced_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "old").unwrap();
        fs::set_permissions(at("old"), Permissions::from_mode(0o640)).unwrap();
        fs::write(at("old.part"), "the user's").unwrap();
        symlink("old", at("link")).unwrap();
        symlink("new", at("dangling")).unwrap();
        write_whole(&at("link"), "one").unwrap();
        write_whole(&at("dangling"), "two").unwrap();
        assert_eq!(names(folder.path()), ["dangling", "link", "new", "old", "old.part"]);
        assert!(at("link").is_symlink() && at("dangling").is_symlink());
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!([read("old"), read("new"), read("old.part")], ["one", "two", "the user's"]);
        assert_eq!(fs::metadata(at("old")).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn pipes_and_devices_are_written_to_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mkfifo = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(mkfifo.success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write_whole(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        let null = folder.path().join("null");
        symlink("/dev/null", &null).unwrap();
        write_whole(&null, "nowhere").unwrap();
        assert!(null.is_symlink() && fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(names(folder.path()), ["null", "pipe"]);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let circle = folder.path().join("circle");
        symlink("circle", &circle).unwrap();
        for path in [folder.path(), &folder.path().join("no/where"), &circle, &folder.path().join("..")] {
            assert!(write_whole(path, "x").is_err(), "{}", path.display());
        }
        assert_eq!(names(folder.path()), ["circle"]);
        let error = write_whole(&folder.path().join("no/where"), "x").unwrap_err().to_string();
        let missing = folder.path().join("no");
        assert_eq!(error, format!("{}: No such file or directory (os error 2)", missing.display()));
    }

    #[test]
    fn of_several_files_all_are_there_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
        let text =
            |i: usize, mut file: File| file.write_all(&[b'0' + i as u8]).map_err(|e| Error::io("?", e));
        // The second cannot be made.
        let full = |i, file| {
            if i == 1 { Err(Error::io("?", io::ErrorKind::StorageFull.into())) } else { text(i, file) }
        };
        let error = write_set(&paths, false, 0, full).unwrap_err().to_string();
        assert!(error.starts_with(&paths[1].display().to_string()), "{error}");
        assert_eq!(names(folder.path()), [""; 0]);
        // One cannot be put in its place: while they were made, somebody made a folder of that name.
        for (blocked, kept) in [(0, &["a"][..]), (1, &["b"]), (2, &["c"])] {
            let late = |i, file| {
                if i == 2 {
                    fs::create_dir(&paths[blocked]).unwrap();
                }
                text(i, file)
            };
            assert!(write_set(&paths, false, 0, late).is_err());
            assert_eq!(names(folder.path()), kept);
            fs::remove_dir(&paths[blocked]).unwrap();
        }
        // The same where there are old files: they come back.
        for blocked in 0..3 {
            for path in &paths {
                fs::write(path, "old").unwrap();
            }
            let late = |i, file| {
                if i == 2 {
                    fs::remove_file(&paths[blocked]).unwrap();
                    fs::create_dir(&paths[blocked]).unwrap();
                }
                text(i, file)
            };
            assert!(write_set(&paths, true, 0, late).is_err());
            assert_eq!(names(folder.path()), ["a", "b", "c"]);
            for (i, path) in paths.iter().enumerate().filter(|&(i, _)| i != blocked) {
                assert_eq!(fs::read_to_string(path).unwrap(), "old", "{i}, {blocked} was in the way");
            }
            fs::remove_dir(&paths[blocked]).unwrap();
        }
        for name in names(folder.path()) {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        write_set(&paths, false, 0, text).unwrap();
        assert_eq!(paths.each_ref().map(|path| fs::read_to_string(path).unwrap()), ["0", "1", "2"]);
        // One that is there is enough to leave all alone.
        fs::remove_file(&paths[0]).unwrap();
        assert!(write_set(&paths, false, 0, text).unwrap_err().to_string().contains("b: exists"));
        assert_eq!(names(folder.path()), ["b", "c"]);
        write_set(&paths, true, 0, text).unwrap();
        assert_eq!(names(folder.path()), ["a", "b", "c"]);
    }

    #[test]
    fn endless_files_are_read_only_so_far() {
        let error = read_limited(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero: larger than 1 MiB, the most that is read");
        assert!(read_limited(Path::new("/dev/null"), 0).unwrap().is_empty());
    }
}
