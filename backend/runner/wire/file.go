package wire

// FileEntry describes one file of a workspace.
type FileEntry struct {
	Name    string `json:"name"`
	Path    string `json:"path"` // relative to the workspace
	Type    string `json:"type"` // "file", "dir", "symlink" or "other"
	Size    int64  `json:"size"`
	MtimeMS int64  `json:"mtime_ms"`
	Mode    string `json:"mode"` // octal permission bits, such as "0644"
}

// FileList answers GET …/files/list.
type FileList struct {
	Entries []FileEntry `json:"entries"`
}

// Written answers PUT …/files/write.
type Written struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// Done answers what has nothing else to say.
type Done struct {
	OK bool `json:"ok"`
}
