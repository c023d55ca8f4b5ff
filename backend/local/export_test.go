package local

// Disconnect ends the connections that wait for a next call.
func (b *Backend) Disconnect() { b.client.CloseIdleConnections() }
