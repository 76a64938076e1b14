/* Pages and pictures that the commands write: HTML without scripts or other files, and SVG. Both
 * are light or dark by CSS, and readable at the width of a phone. */
#ifndef OPTC_PAGE_H
#define OPTC_PAGE_H
#include "tools/tools.h"

/* ---- page_html.c ---- */
void html_text(Buf *b, const char *s);                 /* escaped */
/* at most four digits; a dash if it is not finite */
void html_number(Buf *b, double x);
void html_time(Buf *b, double seconds);                /* a dash if it is not finite */
/* Everything up to the first heading. series: the number of colour classes r0, r1, … of curves and
 * k0, k1, … of keys.
 * css: further rules, or "". */
void html_begin(Buf *b, const char *title, int series, const char *css);
void html_end(Buf *b);
/* A picture as a file of its own, with its style and background. svg_end closes it. */
void svg_begin(Buf *b, const char *title, int width, int height, int series);
void svg_end(Buf *b);
/* the name ends in .svg: only the picture is wanted */
bool page_is_svg(const char *path);

/* ---- page_plot.c ---- */
enum {
    PLOT_WIDTH = 480, PLOT_HEIGHT = 300, PLOT_LEFT = 56, PLOT_RIGHT = 16, PLOT_TOP = 12,
    PLOT_BOTTOM = 38
};
/* A plot in a box of width x height units. The y axis is logarithmic. */
typedef struct Plot {
    double x0, x1, y0, y1;
    bool log_x;
    int width, height;         /* 0: PLOT_WIDTH, PLOT_HEIGHT */
    int at_x, at_y;            /* inside: the corner in the picture that contains the plot */
    bool inside;
    Buf *b;
    const char *clip;          /* the id of the area's clip path */
} Plot;
double plot_x(const Plot *p, double x);
double plot_y(const Plot *p, double y);
/* the right and the lower end of the area, in units */
int plot_end_x(const Plot *p);
int plot_end_y(const Plot *p);
/* Draws axes and ticks. kind, subject: data attributes; programs read the ranges from further
 * ones. */
void plot_open(const Plot *p, const char *kind, const char *subject, const char *label_x,
               const char *label_y);
void plot_close(const Plot *p);
#endif
