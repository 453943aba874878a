/**
 * An embedded key-value store: a store is a directory of tables, and a table maps keys to values,
 * both any bytes. The classes call the C library {@code libsiltstone} by {@code java.lang.foreign};
 * the README says how the library is found.
 *
 * <p><b>Reads.</b> The value of a missing key is {@code null}. An empty value is an empty array.
 * Arrays that are returned belong to the caller; arrays that are passed are copied before the
 * method returns.
 *
 * <p><b>Errors</b> are {@link siltstone.SiltstoneException}s with a {@link siltstone.Code}.
 *
 * <p><b>Closing.</b> Every object that is {@link AutoCloseable} has memory outside of Java's heap,
 * and keeps versions of the store, which {@code close} frees at once, and the collector at some time
 * if nobody closes it. Close every {@link siltstone.Store}: only that reports what could not be made
 * durable. {@code close} can be called twice, and while other threads use the object:
 * calls in progress finish, and later ones throw {@link siltstone.Code#CLOSED}. So do calls with a
 * table, snapshot or transaction of a store that was closed; its cursors may still show entries
 * that are in memory.
 *
 * <p><b>Threads.</b> Several threads can use a {@link siltstone.Store}, {@link siltstone.Table} or
 * {@link siltstone.Snapshot} at the same time. A {@link siltstone.Batch}, {@link
 * siltstone.Transaction}, {@link siltstone.Cursor} or {@link siltstone.Changes} belongs to one thread at a time: calls exclude
 * one another, but two threads would mix their operations. A virtual thread stays on its carrier
 * during a call.
 */
package siltstone;
