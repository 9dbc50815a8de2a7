// Go: ServeMux, and a handler that cleans the path itself, on the next port.
package main

import (
	"fmt"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
)

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

func main() {
	first, _ := strconv.Atoi(os.Args[1])
	mux := http.NewServeMux()
	mux.HandleFunc("/login", answer("login"))
	mux.HandleFunc("/users/{id}", answer("user"))
	mux.HandleFunc("/api/{rest...}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("rest") == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "api")
	})
	go http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", first), mux)
	clean := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found := path.Clean(r.URL.Path)
		switch {
		case found == "/login":
			fmt.Fprint(w, "login")
		case strings.HasPrefix(found, "/users/") && strings.Count(found, "/") == 2:
			fmt.Fprint(w, "user")
		case strings.HasPrefix(found, "/api/"):
			fmt.Fprint(w, "api")
		default:
			http.NotFound(w, r)
		}
	})
	http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", first+1), clean)
}
