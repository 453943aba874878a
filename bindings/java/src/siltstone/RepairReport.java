package siltstone;

/**
 * What a repair has done and lost.
 *
 * @param isLossless whether nothing was lost
 * @param json the report: {@code {"catalogue":[LINE],"tables":{NAME:{"lines":[LINE],
 *     "losses":[{"file":F,"bytes":{"start":0,"end":9},"effect":"entries"}]}}}}
 */
public record RepairReport(boolean isLossless, String json) {}
