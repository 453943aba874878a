//! Merge operators of the program.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use store::MergeOperator;

use crate::callback::{CallbackArg, SiltstoneFreeCallback};
use crate::error::{SiltstoneError, guard, invalid, required};
use crate::memory::{address, bytes, text};
use crate::options::SiltstoneOptions;

/// Receives what a merge callback returns. It is valid during the call.
#[derive(Debug, Default)]
pub struct SiltstoneMergeOutput(Vec<u8>);

/// Computes the value of a key after `operand_count` operands, at least one, the oldest first.
/// `value` is the one before, or NULL if the key was missing. It appends the result to `output`, by
/// siltstone_merge_output_append(), and returns true. If the operands do not apply it returns
/// false: reads of the key fail then, with what was appended as the reason.
///
/// A partial merge gets at least two operands and no value, and appends one operand with the effect
/// of all of them, or returns false if there is none.
///
/// It must depend on its arguments alone: it is called in reads, flushes and compactions, at any
/// time, on any thread, on several at the same time. All pointers are valid during the call. It
/// must not use the store, unwind or jump out. `arg` is the argument of
/// siltstone_options_add_merge_operator().
pub type SiltstoneMergeCallback = Option<
    unsafe extern "C" fn(
        arg: *mut c_void,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        operand_count: usize,
        operands: *const *const c_char,
        operand_lens: *const usize,
        output: &mut SiltstoneMergeOutput,
    ) -> bool,
>;

struct CMergeOperator {
    name: String,
    full: Callback,
    partial: SiltstoneMergeCallback,
    arg: CallbackArg,
}

type Callback = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    usize,
    *const c_char,
    usize,
    usize,
    *const *const c_char,
    *const usize,
    &mut SiltstoneMergeOutput,
) -> bool;

impl CMergeOperator {
    /// What the callback appends, as `Err` if it returns false.
    fn call(
        &self,
        merge: Callback,
        key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, Vec<u8>> {
        let pointers: Vec<_> = operands.iter().map(|operand| address(operand)).collect();
        let lens: Vec<_> = operands.iter().map(|operand| operand.len()).collect();
        let mut output = SiltstoneMergeOutput::default();
        // SAFETY: the caller has passed a function that takes this argument, and reads as many
        // bytes as the lengths say, during the call.
        let is_merged = unsafe {
            merge(
                self.arg.get(),
                address(key),
                key.len(),
                value.map_or(std::ptr::null(), address),
                value.map_or(0, <[u8]>::len),
                operands.len(),
                pointers.as_ptr(),
                lens.as_ptr(),
                &mut output,
            )
        };
        if is_merged { Ok(output.0) } else { Err(output.0) }
    }
}

impl MergeOperator for CMergeOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let merged = self.call(self.full, key, value, operands);
        merged.map_err(|reason| match reason.is_empty() {
            true => format!("the merge operator '{}' returned false", self.name),
            false => String::from_utf8_lossy(&reason).into_owned(),
        })
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.call(self.partial?, key, None, operands).ok()
    }
}

/// Appends bytes, which are copied, to the result of a merge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_merge_output_append(
    output: Option<&mut SiltstoneMergeOutput>,
    data: *const c_char,
    len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let data = unsafe { bytes(data, len, "data") }?;
        required(output, "output")?.0.extend_from_slice(data);
        Ok(())
    })
}

/// Adds a merge operator for the table `table`, which must be on lsm: its first one is recorded in
/// it by its name, which stands for the format of the operands, and another name is refused. Add it
/// before each open; without it keys with operands cannot be read. The table takes no values that
/// expire. Names with the prefix "siltstone." are reserved.
///
/// `merge` is needed; `partial_merge` may be NULL. `arg` is passed to both. `free_arg`, which may be
/// NULL, is called with `arg` when these options and all stores that were opened with them are
/// freed; also after an error.
///
/// Errors: INVALID for a reserved name, and for a second operator of the table in these options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_options_add_merge_operator(
    options: Option<&mut SiltstoneOptions>,
    table: *const c_char,
    name: *const c_char,
    merge: SiltstoneMergeCallback,
    partial_merge: SiltstoneMergeCallback,
    arg: *mut c_void,
    free_arg: SiltstoneFreeCallback,
) -> Option<Box<SiltstoneError>> {
    let arg = CallbackArg::new(arg, free_arg);
    guard(move || {
        // SAFETY: the caller passes NUL-terminated strings.
        let (table, name) = unsafe { (text(table, "table")?, text(name, "name")?) };
        let full = required(merge, "merge")?;
        let operators = &mut required(options, "options")?.merge_operators;
        if name.starts_with("siltstone.") || name.is_empty() {
            return Err(invalid(format!(
                "the merge operator's name '{name}' is empty or reserved; choose one without the \
                 prefix 'siltstone.'"
            )));
        }
        if operators.contains_key(table) {
            return Err(invalid(format!("table '{table}' has a merge operator in these options")));
        }
        let operator = CMergeOperator { name: name.to_owned(), full, partial: partial_merge, arg };
        operators.insert(table.to_owned(), Arc::new(operator));
        Ok(())
    })
}
