// Package http is the task kind that calls an HTTP endpoint, and the resource kind of the target such calls are made to.
//
// Secrets get in through env("NAME") in headers only. They are in no error and no result: errors name the address as the
// definition wrote it, and what a server sends back is searched for them. They reach the host they are meant for and no
// other: a redirect that leaves its origin carries none of the configured headers.
//
// Connections are kept and shared: by all calls to a target, and by all calls that name none. Proxies that the daemon's
// environment names are not used.
package http
