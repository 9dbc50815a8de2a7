import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.file.Files;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.buf.EncodedSolidusHandling;

/** Tomcat: as it is, one that decodes `%2F` and takes `\` for `/`, and one that leaves `%2F`. */
public class Servers {
  public static void main(String[] args) throws Exception {
    Tomcat tomcat = new Tomcat();
    String folder = Files.createTempDirectory("tomcat").toString();
    tomcat.setBaseDir(folder);
    int first = Integer.parseInt(args[0]);
    String[] kinds = {"reject", "decode", "passthrough"};
    for (int place = 0; place < kinds.length; place++) {
      Connector connector = new Connector();
      connector.setPort(first + place);
      connector.setProperty("address", "127.0.0.1");
      connector.setProperty("maxKeepAliveRequests", "-1");
      connector.setProperty("relaxedPathChars", "\\{}|");
      connector.setEncodedSolidusHandling(kinds[place]);
      connector.setAllowBackslash(place > 0);
      tomcat.getService().addConnector(connector);
    }
    var context = tomcat.addContext("", folder);
    add(context, "login", "/login");
    add(context, "user", "/users/*");
    add(context, "api", "/api/*");
    tomcat.start();
    tomcat.getServer().await();
  }

  static void add(org.apache.catalina.Context context, String name, String pattern) {
    HttpServlet servlet =
        new HttpServlet() {
          @Override
          protected void doGet(HttpServletRequest request, HttpServletResponse response)
              throws IOException {
            String rest = request.getPathInfo();
            boolean isOne = rest != null && rest.length() > 1;
            if (name.equals("user")) isOne = isOne && rest.indexOf('/', 1) < 0;
            if (!name.equals("login") && !isOne) {
              response.sendError(404);
              return;
            }
            response.setContentLength(name.length());
            response.getWriter().print(name);
          }
        };
    Tomcat.addServlet(context, name, servlet);
    context.addServletMappingDecoded(pattern, name);
  }
}
