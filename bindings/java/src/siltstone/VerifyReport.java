package siltstone;

/**
 * What a verification found.
 *
 * @param isIntact whether no damage was found
 * @param json the report: {@code {"catalogue":[],"unlisted":[],"tables":{NAME:{"files":1,"bytes":2,
 *     "entries":3,"damage":[{"file":F,"offset":0,"reason":R}]}}}}
 */
public record VerifyReport(boolean isIntact, String json) {}
