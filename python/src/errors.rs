//! The library's errors as Python's, with the same one line.

use pyo3::{
    PyErr, create_exception,
    exceptions::{
        PyException, PyFileExistsError, PyFileNotFoundError, PyMemoryError, PyOSError, PyPermissionError,
        PyValueError,
    },
};
use spec_run::Error;

create_exception!(
    spec_run,
    SpecRunError,
    PyException,
    "A model that cannot be run here, a device that fails, or an engine that has ended."
);

/// What a caller could have given otherwise is a `ValueError`; what the system refuses is an `OSError`.
pub fn raised(error: Error) -> PyErr {
    let line = error.to_string();
    match error {
        Error::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(line),
            std::io::ErrorKind::PermissionDenied => PyPermissionError::new_err(line),
            std::io::ErrorKind::AlreadyExists => PyFileExistsError::new_err(line),
            _ => PyOSError::new_err(line),
        },
        Error::Memory(_) => PyMemoryError::new_err(line),
        Error::Usage(_) | Error::Mask(_) | Error::Batch(_) | Error::Input(_) | Error::TooLong { .. } => {
            PyValueError::new_err(line)
        }
        _ => SpecRunError::new_err(line),
    }
}

/// The error of a setting of Python's own.
pub fn wrong(what: impl Into<String>) -> PyErr {
    PyValueError::new_err(what.into())
}
