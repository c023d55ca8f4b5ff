package database

// Lookups are the statements by which Bound and Public read a SQLite file.
var Lookups = []string{boundQuery, publicQuery + `IN (SELECT value FROM json_each($3))`}
